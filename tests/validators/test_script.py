"""Cases as values."""

from gymproof.validators.cases import FAULT_CASES, STATUS_CASES
from gymproof.validators.script import End, Pause, Send, alternating, always, in_turn
from gymproof.validators.wire import COMPLETION, answer, chunked, plain


def test_the_last_round_repeats():
    case = in_turn([b"a"], [b"b"])

    assert [case.steps(n) for n in range(3)] == [(Send(b"a"),), (Send(b"b"),), (Send(b"b"),)]


def test_alternating_rounds_come_round_again():
    case = alternating([b"a"], [End.FIN])

    assert [case.steps(n) for n in range(3)] == [(Send(b"a"),), (End.FIN,), (Send(b"a"),)]


def test_bytes_stand_for_sending_them():
    assert always(b"x", Pause(1), End.RST).steps(0) == (Send(b"x"), Pause(1), End.RST)


def test_no_case_waits_longer_than_a_measurement_may():
    steps = [step for case in FAULT_CASES.values() for round_ in case.rounds for step in round_]

    assert max(step.seconds for step in steps if isinstance(step, Pause)) <= 1.0


def test_there_is_a_case_for_every_status():
    assert set(STATUS_CASES) == set(range(200, 600))


def test_fault_names_are_stable_identifiers():
    assert all(name == name.lower() and name.replace("_", "").isalnum() for name in FAULT_CASES)


def test_an_answer_states_its_length_and_a_bodiless_status_has_no_body():
    assert answer(200, b"abc").endswith(b"Content-Length: 3\r\n\r\nabc")
    assert plain(204) == b"HTTP/1.1 204 Scripted\r\n\r\n"
    assert plain(200).endswith(COMPLETION)


def test_a_chunked_answer_can_be_cut_before_its_last_chunk():
    assert chunked(200, b"abc").endswith(b"3\r\nabc\r\n0\r\n\r\n")
    assert chunked(200, b"abc", last_chunk=False).endswith(b"3\r\nabc\r\n")
