"""What is run: the workloads by name, the policies, and which of them make up the document's table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from .parameters import EAGER_STEP_S, ROUTER_HOP_S, engine_model, workload
from .results import Result, result
from .routing import ROUTERS, make_router
from .simulation import Experiment, Outage, Simulation

OUTAGE = Outage(shard=3, down_at=800.0, up_at=1100.0)
_TWO = Experiment(2, engine_model("two"), workload("two"))


def _spiral(rollouts: int) -> Experiment:
    return Experiment(16, engine_model("spiral"), workload("spiral", rollouts=rollouts))


EXPERIMENTS: Mapping[str, Experiment] = {
    "document": _TWO,
    "document, Z 9.7 s": replace(_TWO, workload=workload("two", away_mean=9.7)),
    "document, Z 9.7 s, hop": replace(_TWO, workload=workload("two", away_mean=9.7), hop=ROUTER_HOP_S),
    "document, wide-EP": Experiment(16, replace(engine_model("sixteen"), base_s=EAGER_STEP_S), workload("sixteen")),
    "document, 16 engines": Experiment(16, engine_model("sixteen"), workload("sixteen")),
    "spiral 0.70": _spiral(400),
    "spiral 0.84": _spiral(480),
    "spiral 0.95": _spiral(540),
    "spiral 0.95, metrics 15 s old": replace(_spiral(540), scrape_every=15.0),
    "above capacity 1.09": _spiral(620),
    "engine dies": replace(_spiral(400), outage=OUTAGE),
}


class Entry(NamedTuple):
    """A column of the document's table: its heading, what the document calls it, and what is simulated for it."""

    heading: str
    document: str | None
    experiment: str
    policy: str


TABLE = (
    Entry("baseline", "baseline", "document", "pinned_replicas"),
    Entry("baseline at unified's Z", "baseline", "document, Z 9.7 s", "pinned_replicas"),
    Entry("unified at the baseline's Z", "unified", "document", "consistent_hash"),
    Entry("unified, its Z and TTFT", "unified", "document, Z 9.7 s, hop", "consistent_hash"),
    Entry("wide-EP at the baseline's Z", "wide-EP", "document, wide-EP", "consistent_hash"),
    Entry("session", None, "document", "session"),
    Entry("session at unified's Z", None, "document, Z 9.7 s", "session"),
)


def runs(experiments: Sequence[str], policies: Sequence[str], seeds: Sequence[int]) -> list[tuple[str, str, int]]:
    """Every combination, those of one seed together. Raises ValueError for a name that is not known."""
    for given, known in ((experiments, EXPERIMENTS), (policies, ROUTERS)):
        for name in given:
            if name not in known:
                raise ValueError(f"unknown {name!r}; known: {', '.join(known)}")
    return [(name, policy, seed) for name in experiments for seed in seeds for policy in policies]


def run(name: str, policy: str, seed: int, progress: Callable[[float], None] = lambda _: None) -> Result:
    """Simulate one."""
    experiment = EXPERIMENTS[name]
    router = make_router(policy, experiment.engines, seed)
    tally = Simulation(experiment, router, seed).run(progress)
    return result(experiment, tally, name=name, policy=policy, seed=seed)
