"""A fleet of simulated engines behind a router, in virtual time: SimPy processes around the engines' own decisions."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

import simpy

from gymproof.router.policies import Sample

from .engine import Engine, Request
from .parameters import EngineModel, Workload
from .rollouts import Rollout, Rollouts
from .routing import Router
from .tally import SAMPLE_S, Tally

RETRY_S = 0.5  # NeMo-Gym's first pause before it asks again
ANSWERED_IN_S = 10.0  # about: the loop's rollouts begin spread over a turn
NEXT_WITHIN_S = 0.5  # a place of the loop is taken again

Process: TypeAlias = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class Outage:
    """One engine dies, and returns empty; seconds of the run."""

    shard: int
    down_at: float
    up_at: float


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is simulated; times in seconds. Measured from `warm_up` to `end`."""

    engines: int
    model: EngineModel
    workload: Workload
    end: float = 1500.0
    warm_up: float = 500.0
    scrape_every: float = 5.0
    hop: float = 0.0  # between client and server, a router's included
    outage: Outage | None = None


class Server:
    """An engine and the process that steps it."""

    def __init__(self, env: simpy.Environment, model: EngineModel) -> None:
        self.engine = Engine(model)
        self.up = True
        self._env = env
        self._answers: dict[Request, simpy.Event] = {}
        self._idle: simpy.Event | None = None
        self._can_be_cut = False
        self._process = env.process(self._steps())

    def submit(self, request: Request) -> simpy.Event:
        """Queue a request; the event's value says whether it was answered."""
        answer = self._env.event()
        if not self.up:
            return answer.succeed(value=False)
        self._answers[request] = answer
        self.engine.waiting.append(request)
        if self._idle is not None:
            self._idle.succeed()
            self._idle = None
        elif self._can_be_cut:
            self._can_be_cut = False
            self._process.interrupt()
        return answer

    def die(self) -> None:
        """Lose everything."""
        self.up = False
        for answer in self._answers.values():
            answer.succeed(value=False)
        self._answers.clear()

    def _steps(self) -> Process:
        env = self._env
        while self.up:
            segment = self.engine.plan(env.now)
            if segment is None:
                self._idle = env.event()
                yield self._idle
                continue
            began = env.now
            self._can_be_cut = segment.steps > 1
            try:
                yield env.timeout(segment.seconds)
            except simpy.Interrupt:
                segment = segment.cut(env.now - began)
                yield env.timeout(max(0.0, began + segment.seconds - env.now))
            self._can_be_cut = False
            if self.up:
                for request in self.engine.finish(segment, env.now):
                    self._answers.pop(request).succeed(value=True)


class Simulation:
    """One run of an experiment with one router and one seed."""

    def __init__(self, experiment: Experiment, router: Router, seed: int) -> None:
        self._experiment = experiment
        self._router = router
        self._rollouts = Rollouts(experiment.workload, seed)
        self._starts = Random(f"starts {seed}")
        self._env = simpy.Environment()
        self.servers = [Server(self._env, experiment.model) for _ in range(experiment.engines)]
        self.tally = Tally(experiment.warm_up)

    def run(self, progress: Callable[[float], None] = lambda _: None) -> Tally:
        """Simulate to the end; `progress` hears of each `SAMPLE_S` simulated seconds."""
        experiment, env = self._experiment, self._env
        for _ in range(experiment.workload.rollouts):
            env.process(self._slot(self._rollouts.aged()))
        env.process(self._every(experiment.scrape_every, self._scrape))
        env.process(self._every(SAMPLE_S, self._sample, lambda: progress(SAMPLE_S)))
        if experiment.outage:
            env.process(self._fail(experiment.outage))
        env.run(experiment.end)
        self.tally.sent(env.now, 0)
        self.tally.preemptions = sum(server.engine.preemptions for server in self.servers)
        return self.tally

    def _slot(self, rollout: Rollout) -> Process:
        """One place of the closed loop: rollouts one after the other, turn by turn."""
        work = self._experiment.workload
        yield self._env.timeout(self._starts.random() * (work.away_mean + ANSWERED_IN_S))
        while True:
            while rollout.turns > 0:
                answer = self._rollouts.answer(rollout)
                yield from self._ask(rollout, answer)
                yield self._env.timeout(self._rollouts.answered(rollout, answer))
            self._router.over(rollout)
            rollout = self._rollouts.fresh()
            yield self._env.timeout(self._starts.random() * NEXT_WITHIN_S)

    def _ask(self, rollout: Rollout, answer: int) -> Process:
        """One turn, sent again until a shard answers it."""
        env, experiment = self._env, self._experiment
        sent, known = env.now, rollout.known
        self.tally.sent(sent, 1)
        while True:
            shard = self._router.route(rollout, env.now)
            if shard is not None:
                self.tally.moves += rollout.shard not in {None, shard} and env.now > experiment.warm_up
                rollout.shard = shard
                request = Request(rollout.prefix, rollout.context, answer)
                yield env.timeout(experiment.hop + experiment.model.server_s)
                arrived = env.now
                if (yield self.servers[shard].submit(request)):
                    self._router.ended(rollout, shard, answer, env.now)
                    self.tally.sent(env.now, -1)
                    self.tally.ended(request, known - known % experiment.model.hit_tokens, sent, arrived, env.now)
                    return
                self._router.ended(rollout, shard, None, env.now)
            self.tally.repeats += 1
            yield env.timeout(RETRY_S)

    def _every(self, seconds: float, *actions: Callable[[], None]) -> Process:
        while True:
            yield self._env.timeout(seconds)
            for action in actions:
                action()

    def _sample(self) -> None:
        self.tally.sample([server.engine for server in self.servers], self._env.now)

    def _scrape(self) -> None:
        for shard, server in enumerate(self.servers):
            if server.up:
                self._router.scraped(shard, sample_of(server.engine, self._experiment.model), self._env.now)

    def _fail(self, outage: Outage) -> Process:
        yield self._env.timeout(outage.down_at)
        self.servers[outage.shard].die()
        self._router.serving(outage.shard, self._env.now, up=False)
        yield self._env.timeout(outage.up_at - outage.down_at)
        self.servers[outage.shard] = Server(self._env, self._experiment.model)
        self._router.serving(outage.shard, self._env.now, up=True)


def sample_of(engine: Engine, model: EngineModel) -> Sample:
    """What an engine's `/metrics` say."""
    hits, queries = float(engine.prefix_hits), float(engine.prefix_queries)
    return Sample(engine.cache.usage, len(engine.waiting), model.kv_tokens, queries, hits)
