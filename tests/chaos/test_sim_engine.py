import socket

import orjson
import pytest

from gymproof.chaos.sim import engine as engine_module
from gymproof.chaos.sim.engine import Engine
from gymproof.chaos.sim.settings import Settings

ADD = {"do": "add", "request": 1, "prompt": [1, 2], "max_tokens": 3, "ignore_eos": True, "stream": False}


@pytest.fixture
def api():
    """The API server's end of an engine's socket; `api[1]` is the engine."""
    ours, engines = socket.socketpair()
    ours.settimeout(5.0)
    with ours, engines:
        yield ours, Engine(Settings(port=1, token_ms=0), engines)


def events(ours: socket.socket) -> list[dict]:
    return [orjson.loads(line) for line in ours.recv(1 << 20).splitlines()]


def tell(ours: socket.socket, **command) -> None:
    ours.sendall(orjson.dumps(command) + b"\n")


def test_an_engine_says_when_it_is_ready_and_answers_what_it_is_given(api):
    ours, engine = api
    tell(ours, **ADD)

    assert engine.turn()

    ready, *steps = events(ours)
    assert ready == {"event": "ready"}
    [(request, tokens, finish)] = [output for step in steps for output in step["outputs"]]
    assert (request, len(tokens), finish) == (1, 3, "length")
    assert steps[-1]["stats"]["generation_tokens"] == 3


def test_a_command_may_come_in_pieces(api):
    ours, engine = api
    line = orjson.dumps({"do": "is_paused", "id": 7}) + b"\n"

    for piece in (line[:5], line[5:]):
        ours.sendall(piece)
        engine.turn()

    assert {"event": "reply", "id": 7, "paused": False} in events(ours)


def test_a_pause_is_answered_when_nothing_runs_any_more(api):
    ours, engine = api
    tell(ours, do="pause", mode="wait", id=1)
    engine.turn()
    tell(ours, **ADD)
    engine.turn()

    replies = [event for event in events(ours) if event["event"] == "reply"]

    assert replies == [{"event": "reply", "id": 1, "paused": True}]
    tell(ours, do="resume", id=2)
    engine.turn()
    assert [output[0] for event in events(ours) for output in event.get("outputs", ())] == [1]


def test_an_engine_outlives_its_server_for_a_while_only(api, monkeypatch):
    ours, engine = api
    tell(ours, **ADD)
    ours.close()

    assert engine.turn()
    assert engine.turn()

    monkeypatch.setattr(engine_module, "_ORPHAN_S", -1.0)
    assert not engine.turn()
