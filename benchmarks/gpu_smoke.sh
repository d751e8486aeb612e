#!/usr/bin/env bash
# Two real vLLM servers on one GPU, four faults, one JSON object on stdout; progress goes to stderr.
#
#   benchmarks/gpu_smoke.sh [MODEL]      a path or a name; a tiny model is made on the spot by default
#
# Needs uv and an NVIDIA GPU. vLLM is installed into .venv-vllm, unless GYMPROOF_VLLM_PYTHON names one that has it.
set -euo pipefail
cd "$(dirname "$0")/.."

model=("$@")
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}"
records="$(mktemp -d)"
trap 'rm -rf "$records"' EXIT

find_vllm='
from gymproof.chaos.vllm.install import find_vllm
found = find_vllm()
print(found.version, "for GPUs" if found.gpus else "for CPUs")'
{
    uv sync --locked
    if ! uv run --locked python -c "$find_vllm"; then
        UV_PROJECT_ENVIRONMENT=.venv-vllm uv sync --locked --no-default-groups --extra vllm
    fi
} >&2
version="$(uv run --locked python -c "$find_vllm")"
gpu="$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)"

started="$SECONDS"
code=0
uv run --locked gym-chaos run kill_engine stop_engine kill_server terminate \
    --fleet vllm --shards 2 ${model[0]:+--model "${model[0]}"} --out "$records" >&2 || code=$?

uv run --locked python - "$records" "$version" "$gpu" "$((SECONDS - started))" <<'PYTHON'
import json
import pathlib
import sys

folder, version, gpu, seconds = sys.argv[1:]
cases = [json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*/verdicts.json"))]
kept = [{key: case[key] for key in ("case", "status", "seconds", "answers", "rollouts")} for case in cases]
print(json.dumps({"vllm": version, "gpu": gpu, "seconds": int(seconds), "cases": kept}, indent=2))
PYTHON
exit "$code"
