"""The work: groups of rollouts whose every turn's prompt extends the last one's. Random, and the same for every policy.

A rollout draws from a generator of its own, in the order of its turns, so that its lengths don't depend on when its
answers come.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp
from random import Random

from .kv_cache import Prefix
from .parameters import Workload

MOST_TOKENS = 8192  # of one answer
LEAST_FIRST = 500  # tokens of a first turn
LEAST_ANSWER = 64  # tokens that a context must have room for, or the rollout ends


@dataclass(slots=True)
class Rollout:
    """One rollout: `context` tokens so far, of which an engine has seen `known`, and `turns` more requests."""

    prefix: Prefix
    draws: Random
    context: int
    known: int
    turns: int
    shard: int | None = None  # where its last turn went

    @property
    def id(self) -> int:
        """Its number, from 0 in the order of starting."""
        return self.prefix.rollout


class Rollouts:
    """Makes rollouts one after the other, each `group` of them with one first turn."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload = workload
        self._seed = seed
        self._made = 0
        self._group = self._groups()

    def fresh(self) -> Rollout:
        """A rollout at its beginning."""
        return self._make(aged=False)

    def aged(self) -> Rollout:
        """One that is somewhere in its life, as a fleet that has run for long has; long rollouts are met more often."""
        return self._make(aged=True)

    def answer(self, rollout: Rollout) -> int:
        """Tokens of the next answer."""
        work = self._workload
        tokens = int(lognormal(rollout.draws, work.answer_mean, work.answer_sigma))
        return max(1, min(tokens, MOST_TOKENS, work.max_context - rollout.context))

    def answered(self, rollout: Rollout, answer: int) -> float:
        """Extend the context by an answer and what its tools say; seconds until the next turn, or the next rollout."""
        work = self._workload
        rollout.known = rollout.context + answer - 1  # the last token of an answer is never an input
        rollout.context += answer + max(1, int(lognormal(rollout.draws, work.tool_mean, work.tool_sigma)))
        rollout.turns -= 1
        if rollout.context >= work.max_context - LEAST_ANSWER:
            rollout.turns = 0
        return lognormal(rollout.draws, work.away_mean, work.away_sigma)

    def _groups(self) -> Iterator[tuple[int, int]]:
        """The group and the first turn's tokens of each rollout."""
        work = self._workload
        group = 0
        while True:
            group -= 1
            draws = Random(f"group {self._seed} {group}")
            tokens = int(
                min(work.max_context // 2, max(LEAST_FIRST, lognormal(draws, work.first_mean, work.first_sigma)))
            )
            for _ in range(work.group):
                yield group, tokens

    def _make(self, *, aged: bool) -> Rollout:
        group, first = next(self._group)
        draws = Random(f"rollout {self._seed} {self._made}")
        known = 0 if self._made % self._workload.group == 0 else first
        rollout = Rollout(Prefix(self._made, group, first), draws, first, known, self._turns(draws, aged=aged))
        self._made += 1
        if aged:
            self._age(rollout)
        return rollout

    def _turns(self, draws: Random, *, aged: bool) -> int:
        work = self._workload
        while True:  # the chance to meet an aged one is in proportion to its turns; three times the mean is rare
            turns = max(1, int(lognormal(draws, work.turns_mean, work.turns_sigma)))
            if not aged or draws.random() < turns / (3 * work.turns_mean):
                return turns

    def _age(self, rollout: Rollout) -> None:
        work, draws = self._workload, rollout.draws
        past = int(draws.random() * rollout.turns)
        for _ in range(past):
            rollout.context += int(lognormal(draws, work.answer_mean, work.answer_sigma))
            rollout.context += int(lognormal(draws, work.tool_mean, work.tool_sigma))
        if rollout.context > work.max_context * 0.95:  # it would have ended: it is somewhere before that instead
            rollout.context = int(work.max_context * (0.3 + 0.65 * draws.random()))
        rollout.turns -= past
        rollout.known = rollout.context


def lognormal(draws: Random, mean: float, sigma: float) -> float:
    """A lognormal number of this mean; sigma is that of its logarithm."""
    return mean * exp(draws.gauss(0.0, 1.0) * sigma - sigma * sigma / 2)
