"""A controller's ledger: what reports do to it, and who may serve."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymproof.router.health import State
from gymproof.router.ledger import Ledger

A, B = "http://a:8000/v1", "http://b:8000/v1"


def ledger(**settings) -> Ledger:
    return Ledger([A, B], **{"eject_after": 3, "now": 0.0, **settings})


def test_every_shard_serves_at_the_start():
    assert ledger().serving == [A, B]


def test_strikes_of_one_window_eject():
    book = ledger()
    book.drained({A: (0, 3)}, since=0.0, until=1.0)

    assert book.states() == {A: State.DEAD, B: State.HEALTHY}
    assert book.serving == [B]


def test_strikes_add_up_over_windows():
    book = ledger()
    for second in range(3):
        assert A in book.serving
        book.drained({A: (0, 1)}, since=second, until=second + 1)

    assert book.serving == [B]


def test_a_success_forgives_the_strikes_of_earlier_windows():
    book = ledger()
    for second in range(0, 60, 3):
        book.drained({A: (0, 2)}, since=second, until=second + 1)
        assert book.states()[A] is State.SUSPECT
        book.drained({A: (50, 0)}, since=second + 1, until=second + 2)
        assert book.states()[A] is State.HEALTHY


def test_failures_among_successes_are_one_strike():
    book = ledger()
    book.drained({A: (1000, 3)}, since=0.0, until=1.0)

    assert book.states()[A] is State.SUSPECT


def test_an_unknown_url_changes_nothing():
    book = ledger()
    book.drained({"http://c:8000/v1": (0, 9)}, since=0.0, until=1.0)

    assert book.serving == [A, B]


def test_another_spelling_is_the_same_shard():
    book = ledger()
    book.drained({"http://a:8000": (0, 3)}, since=0.0, until=1.0)

    assert book.serving == [B]


def test_only_a_refit_brings_a_dead_shard_back():
    book = ledger()
    book.drained({A: (0, 3)}, since=0.0, until=1.0)
    book.probed(A, 2.0, alive=True)
    book.drained({A: (5, 0)}, since=2.0, until=3.0)

    assert book.states()[A] is State.STALE
    book.refitted(A, 4.0)
    assert book.serving == [A, B]


def test_a_restart_takes_a_shard_out_until_its_refit():
    book = ledger()
    book.restarted(A, 1.0)
    assert (book.states()[A], book.serving) == (State.RESTARTING, [B])
    book.probed(A, 2.0, alive=True)
    assert (book.states()[A], book.serving) == (State.STALE, [B])
    book.refitted(A, 3.0)
    assert book.serving == [A, B]


def test_a_window_from_before_a_refit_does_not_count_after_it():
    book = ledger()
    book.restarted(A, 1.0)
    book.refitted(A, 2.0)
    book.drained({A: (0, 9)}, since=0.5, until=2.5)

    assert book.states()[A] is State.HEALTHY


def test_a_probe_from_before_a_restart_says_nothing_of_the_new_process():
    book = ledger()
    book.restarted(A, 1.0)
    book.probed(A, 0.5, alive=True)

    assert book.states()[A] is State.RESTARTING


def test_a_silent_idle_shard_becomes_suspect_and_then_dead():
    book = ledger()
    seen = []
    for second in range(6):
        book.probed(A, float(second), alive=False)
        seen.append(book.states()[A])

    assert seen == [State.HEALTHY] * 2 + [State.SUSPECT] * 3 + [State.DEAD]


def test_one_dropped_probe_in_twenty_is_nothing():
    book = ledger()
    for second in range(200):
        book.probed(A, float(second), alive=second % 20 > 0)

    assert book.states()[A] is State.HEALTHY


def test_silence_does_not_count_while_requests_succeed():
    book = ledger()
    for second in range(20):
        book.drained({A: (3, 0)}, since=second, until=second + 1)
        book.probed(A, second + 1.0, alive=False)

    assert book.states()[A] is State.HEALTHY


def test_the_fleet_is_exhausted_from_the_moment_that_nothing_serves():
    book = ledger()
    assert book.exhausted_for(9.0) == 0.0
    book.restarted(A, 10.0)
    book.restarted(B, 10.0)

    assert book.exhausted_for(15.0) == 6.0
    book.refitted(A, 16.0)
    assert book.exhausted_for(17.0) == 0.0


def test_the_description_has_every_shards_state_and_age():
    book = ledger()
    book.drained({A: (0, 2)}, since=0.0, until=1.0)

    assert book.describe(10.0) == f"{A} suspect for 10 s, 2 strikes; {B} healthy from the start"


def test_a_report_on_a_shard_of_nobody_is_refused():
    with pytest.raises(KeyError, match="not a shard of this fleet"):
        ledger().refitted("http://c:8000/v1", 1.0)


REPORTS = st.one_of(
    st.tuples(st.just("drained"), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("probed"), st.booleans()),
    st.sampled_from([("restarted",), ("refitted",)]),
)


@given(st.lists(REPORTS, max_size=60))
def test_no_report_but_a_refit_brings_a_shard_back(reports):
    book = ledger()
    for tick, (kind, *values) in enumerate(reports, start=1):
        served = A in book.serving
        match kind:
            case "drained":
                book.drained({A: (values[0], values[1])}, since=tick - 1.0, until=float(tick))
            case "probed":
                book.probed(A, float(tick), alive=values[0])
            case "restarted":
                book.restarted(A, float(tick))
            case "refitted":
                book.refitted(A, float(tick))

        assert served or A not in book.serving or kind == "refitted"
        assert B in book.serving
        assert kind != "refitted" or A in book.serving
