"""The router's answers let every client stop: none asks more often than the contract bounds, none is left asking."""

from ..history import History, Outcome
from .base import Verdict, unless
from .evidence import by_call, contract_of, router_was_down

_RETRY = 500


def check(history: History) -> Verdict:
    """Fail on calls with more attempts than the client makes of 500s, and on calls that the harness had to cancel."""
    contract = contract_of(history)
    bound = contract.status(_RETRY).tries
    if bound is None:
        raise ValueError(f"the contract of {contract.client} {contract.version} retries 500 for ever")
    offences = [
        f"{call} {path}: {len(tries)} attempts, {bound} are the bound"
        for (call, path), attempts in by_call(history.attempts).items()
        if len(tries := [one for one in attempts if not router_was_down(history, one)]) > bound
    ]
    offences += [
        f"{call.call} {call.path}: cancelled by the harness; the client would have gone on"
        for call in history.calls
        if call.outcome is Outcome.CANCELLED
    ]
    return unless(offences, "calls without an end", held=f"{len(history.calls)} calls ended by themselves")
