"""What one simulated shard is told at its start."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ENGINE_COMM = "VLLM::EngineCore"  # as vLLM names it; the kernel keeps 15 characters
VERSION = "0.32.0"
ROLES = ("prefill", "decode")
SIGTERM = ("abort", "error", "silence")


@dataclass(frozen=True, slots=True)
class Settings:
    """Parameters of one shard; times are seconds where the name does not say otherwise."""

    port: int
    log: Path | None = None
    seed: int = 0
    model: str = "tiny"
    token_ms: float = 5.0
    prefill_us: float = 0.0  # more for each prompt token that the cache does not have; the whole batch waits for it
    max_model_len: int = 4096
    max_num_seqs: int = 256
    block_size: int = 128  # tokens in a KV cache block
    num_blocks: int = 512
    keep_alive_s: float = 5.0
    shutdown_timeout_s: float = 0.0  # 0: SIGTERM ends what is in flight, as vLLM's default does
    sigterm: str = "abort"  # how: "abort", "error" or "silence"
    dev: bool = False
    role: str | None = None  # None: no KV connector is configured
    kv_lease_s: float = 30.0  # how long a prefill shard keeps blocks that no decode shard has fetched


def parse(argv: Sequence[str] | None = None) -> Settings:
    """Read the command line; argparse exits with 2 on a bad one."""
    parser = argparse.ArgumentParser(
        prog="python -m gymproof.chaos.sim",
        description="One simulated vLLM shard.",
        argument_default=argparse.SUPPRESS,  # the defaults are those of Settings
    )
    parser.add_argument("--port", type=int, required=True, help="loopback port to serve on")
    parser.add_argument("--log", type=Path, help="append one JSON line a request and answer to this file")
    parser.add_argument("--seed", type=int, help="shards of one seed answer one prompt alike")
    parser.add_argument("--model", help="served model name")
    parser.add_argument("--token-ms", type=float, help="milliseconds a decoding step takes")
    parser.add_argument("--prefill-us", type=float, help="microseconds that a prompt token outside the cache takes")
    parser.add_argument("--max-model-len", type=int, help="prompt and answer together, tokens")
    parser.add_argument("--max-num-seqs", type=int, help="requests that decode together")
    parser.add_argument("--block-size", type=int, help="tokens in a KV cache block")
    parser.add_argument("--num-blocks", type=int, help="KV cache blocks")
    parser.add_argument("--keep-alive-s", type=float, help="close a connection idle for so long")
    parser.add_argument("--shutdown-timeout-s", type=float, help="let requests finish after SIGTERM")
    parser.add_argument("--sigterm", choices=SIGTERM, default="abort", help="what SIGTERM makes of what is in flight")
    parser.add_argument("--dev", action="store_true", help="serve /pause, /resume and /is_paused too")
    parser.add_argument("--role", choices=ROLES, help="speak kv_transfer_params as NixlConnector does, for this leg")
    parser.add_argument("--kv-lease-s", type=float, help="keep what a decode shard shall fetch for so long")
    return Settings(**vars(parser.parse_args(argv)))
