"""Every number of the simulated engines and of their work: one table each, a row a parameter, with its origin.

"The document" is the published benchmark (`document.py`): Nemotron-3 Super 120B, contexts to 131,072 tokens, 256
rollouts in flight on two nodes of eight H200. What it reports fixes some parameters, others are derived or assumed;
each row says which. The spiral's engines have less room for KV, near the fleet's capacity.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One parameter: its unit, its value under each profile, and where that comes from."""

    unit: str
    values: Mapping[str, float]
    origin: str


@dataclass(frozen=True, slots=True)
class EngineModel:
    """One engine.

    A step takes `base_s + per_seq_s * running + per_context_s * context tokens of those that decode
    + per_prefill_s * prefilled tokens * (1 + per_prefix * tokens before them)` seconds.
    """

    kv_tokens: int
    hit_tokens: int
    max_num_seqs: int
    step_tokens: int
    base_s: float
    per_seq_s: float
    per_context_s: float
    per_prefill_s: float
    per_prefix: float
    server_s: float


@dataclass(frozen=True, slots=True)
class Workload:
    """A closed loop of rollouts; lengths in tokens, lognormal with a mean and a sigma (of the logarithm)."""

    rollouts: int
    group: int
    first_mean: float
    first_sigma: float
    answer_mean: float
    answer_sigma: float
    tool_mean: float
    tool_sigma: float
    turns_mean: float
    turns_sigma: float
    away_mean: float
    away_sigma: float
    max_context: int


def same(document: float, wide: float, spiral: float) -> Mapping[str, float]:
    """The values of the document's shape on 2 engines, on 16, and of the spiral."""
    return {"two": document, "sixteen": wide, "spiral": spiral}


def all_same(value: float) -> Mapping[str, float]:
    """One value under every profile."""
    return same(value, value, value)


ENGINE: Mapping[str, Row] = {
    "kv_tokens": Row(
        "tokens", same(12_000_000, 1_500_000, 2_000_000),
        "two: memory of a TP8 node less the weights, rough, never binding; spiral: GLM-Air-like FP8 weights on TP4",
    ),
    "hit_tokens": Row(
        "tokens", same(1056, 1056, 16),
        "a prefix hit's granularity. two: page alignment of a hybrid Mamba model at TP8; spiral: vLLM's default block",
    ),
    "max_num_seqs": Row("requests", all_same(256), "vLLM 0.32's source, default"),
    "step_tokens": Row("tokens", all_same(8192), "vLLM 0.32's source, default max_num_batched_tokens"),
    "base_s": Row(
        "s", same(0.01643, 0.0132, 0.0150), "fitted to the document's TPOT, 26 ms; spiral: assumed",
    ),
    "per_seq_s": Row(
        "s", same(8e-5, 9e-4, 1.5e-4), "estimated: each further token touches more experts (512, top 22)",
    ),
    "per_context_s": Row("s", same(1e-9, 8e-9, 1.4e-8), "derived: KV bytes of a token / HBM bandwidth"),
    "per_prefill_s": Row(
        "s", same(2.2e-5, 1.76e-4, 4.4e-5), "assumed: about a third of the BF16 roof for 12 billion active parameters",
    ),
    "per_prefix": Row(
        "1/token", same(5.3e-6, 5.3e-6, 6e-5), "derived from the number of attention layers; their number is assumed",
    ),
    "server_s": Row("s", same(0.271, 0.042, 0.1), "fitted to the document's TTFT, 0.34 s; spiral: assumed"),
}  # fmt: skip

WORKLOAD: Mapping[str, Row] = {
    "rollouts": Row("rollouts", same(256, 256, 480), "the document; spiral: 480 is load 0.84 on 16 engines"),
    "group": Row("rollouts", all_same(16), "siblings that share a first turn: prime-rl's published SWE configuration"),
    "first_mean": Row("tokens", same(6000, 6000, 8000), "assumed; the document's mean prompt bounds it"),
    "first_sigma": Row("-", all_same(0.4), "assumed"),
    "answer_mean": Row("tokens", same(379, 379, 400), "the document: (end-to-end - TTFT) / TPOT; spiral: assumed"),
    "answer_sigma": Row("-", all_same(1.0), "assumed"),
    "tool_mean": Row("tokens", same(470, 470, 1100), "fitted to the document's hit rate, 0.969; spiral: assumed"),
    "tool_sigma": Row("-", all_same(1.2), "assumed"),
    "turns_mean": Row("turns", same(52, 52, 70), "fitted to the document's mean prompt, 32.4k; spiral: assumed"),
    "turns_sigma": Row("-", same(0.5, 0.5, 0.4), "assumed"),
    "away_mean": Row(
        "s", same(13.8, 13.8, 10), "between answer and next turn. The document: rollouts / (requests/s) - end-to-end",
    ),
    "away_sigma": Row("-", all_same(1.0), "assumed"),
    "max_context": Row("tokens", all_same(131_072), "the document"),
}  # fmt: skip

ROUTER_HOP_S = 0.4  # the document's TTFT with the router (0.76 s) less without (0.34 s)
EAGER_STEP_S = 0.1207  # fitted to TPOT 143 ms: the wide expert parallel shape ran without CUDA graphs


def engine_model(profile: str) -> EngineModel:
    """The engines of a profile."""
    return EngineModel(**_column(ENGINE, profile, EngineModel))


def workload(profile: str, **changes: Any) -> Workload:
    """The rollouts of a profile, some of their parameters changed."""
    return replace(Workload(**_column(WORKLOAD, profile, Workload)), **changes)


def _column(table: Mapping[str, Row], profile: str, kind: type) -> dict[str, Any]:
    whole = {field.name for field in fields(kind) if field.type is int}
    return {name: int(row.values[profile]) if name in whole else row.values[profile] for name, row in table.items()}
