#!/bin/bash
# Starts the engines of one node: srun runs it once on each. Arguments: the ranks file, then what every vLLM is told.
set -euo pipefail
ranks=$1
shift

while read -r node role _ _ port gpus dp_rank dp_size dp_address dp_rpc_port side_channel_port; do
    [[ $node == "$SLURMD_NODENAME" ]] || continue
    commas=${gpus//[^,]/}
    args=(--host 0.0.0.0 --port "$port" --tensor-parallel-size $((${#commas} + 1)))
    if ((dp_size > 1)); then
        args+=(--enable-expert-parallel --data-parallel-size "$dp_size" --data-parallel-rank "$dp_rank")
        args+=(--data-parallel-address "$dp_address" --data-parallel-rpc-port "$dp_rpc_port")
    fi
    if [[ $role != backend ]]; then
        args+=(--kv-transfer-config '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}')
        export VLLM_NIXL_SIDE_CHANNEL_HOST=$node VLLM_NIXL_SIDE_CHANNEL_PORT=$side_channel_port
    fi
    CUDA_VISIBLE_DEVICES=$gpus vllm serve "$@" "${args[@]}" &
done < <(grep -v '^#' "$ranks")
wait
