"""Is a status safe to answer a client with? Decided from its contract alone."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal

from .contract import CLIENT, Behaviour, Contract, Handling, load_contract
from .findings import Finding, UnsafeForGymError, Verdict

Role = Literal["retry", "give_up", "any"]

# What to answer with, best first; which of them says what is up to the client.
_CANDIDATES: Mapping[Literal["retry", "give_up"], tuple[int, ...]] = {"retry": (500, 503), "give_up": (409, 424)}
_FIRST_REDIRECT, _FIRST_ERROR = 300, 400

_UNBOUNDED = (
    "retried without bound: two requests a second until the process dies, "
    "and neither a timeout nor a cancelled rollout ends them"
)
_AS_SUCCESS = "taken for a success: the body goes to the rollout as if it were a completion"
_NO_BODY = "taken for a success, and then there is no JSON in it"
_REDIRECT = "with a Location the client follows it past the router; without one it is taken for a success"
_SCORED = (
    "a 400 whose body says `max_tokens` or `context length` is scored as a finished, overlong rollout; "
    "anything else in it fails the rollout after 1 try"
)
_PURPOSE: Mapping[Literal["retry", "give_up"], str] = {
    "retry": "for a failure that another try may mend",
    "give_up": "for one that no try can",
}
_ROLES: Mapping[Role, tuple[Literal["retry", "give_up"], ...]] = {
    "retry": ("retry",),
    "give_up": ("give_up",),
    "any": ("retry", "give_up"),
}


def right_status(role: Literal["retry", "give_up"], contract: Contract) -> int:
    """The status that makes this client try again a bounded number of times, or end the call at once.

    ValueError for a client that no status can make do it.
    """
    for status in _CANDIDATES[role]:
        behaviour = contract.statuses.get(status)
        if behaviour and behaviour.handling is Handling.RAISED and (behaviour.tries == 1) is (role == "give_up"):
            return status
    raise ValueError(f"no status makes {contract.client} {contract.version} {role.replace('_', ' ')}")


def judge_status(
    status: int, *, role: Role = "any", contract: Contract | None = None, source: str = "", key: str = "status"
) -> Finding:
    """What happens to a rollout that is answered with `status`.

    ValueError outside 200..599 or for an unknown role, TypeError for what is no whole number.

    `role` is what the status is meant to do: "retry" makes the client send the request again,
    "give_up" ends the call at once, "any" asks only for no harm.
    """
    _check_question(status, role)
    contract = contract or load_contract()
    verdict, problem = _judge(status, contract, role)
    return Finding(verdict, source, key, status, problem, "" if verdict is Verdict.SAFE else _right(role, contract))


def _right(role: Role, contract: Contract) -> str:
    return ", ".join(f"{right_status(one, contract)} {_PURPOSE[one]}" for one in _ROLES[role]) + "."


def _check_question(status: Any, role: Any) -> None:
    if isinstance(status, bool) or not isinstance(status, int):
        raise TypeError(f"a status is a whole number such as 409, not {status!r}")
    if role not in _ROLES:
        raise ValueError(f"unknown role {role!r}; known: {', '.join(_ROLES)}")


def _judge(status: int, contract: Contract, role: Role) -> tuple[Verdict, str]:
    behaviour = contract.status(status)
    if behaviour.handling is Handling.UNBOUNDED:
        return Verdict.UNSAFE, _UNBOUNDED
    if behaviour.handling is Handling.HANGS:
        return Verdict.UNSAFE, f"the call never ends: {behaviour}"
    if status < _FIRST_ERROR:
        return _judge_success(status, behaviour, role)
    return _judge_error(status, contract, role)


def _judge_error(status: int, contract: Contract, role: Role) -> tuple[Verdict, str]:
    behaviour = contract.status(status)
    tries = behaviour.tries or 0
    if tries > 1:
        waiting = sum(contract.timing.pauses_s[: tries - 1])
        bounded = f"tried {tries} times within {waiting:.1f} s of waiting, then raised"
        if role == "give_up":
            return Verdict.UNSAFE, f"{bounded}: the client repeats what was meant as final"
        return Verdict.SAFE, bounded
    if role == "retry":
        return Verdict.UNSAFE, "not retried: the rollout is lost where another try could have saved it"
    if status == HTTPStatus.BAD_REQUEST and contract.client == CLIENT:
        return Verdict.CAUTION, _SCORED
    return Verdict.SAFE, f"{behaviour.handling} after 1 try: the rollout fails at once and keeps the error text"


def _judge_success(status: int, behaviour: Behaviour, role: Role) -> tuple[Verdict, str]:
    if status >= _FIRST_REDIRECT:
        return Verdict.UNSAFE, _REDIRECT
    if behaviour.handling is Handling.RAISED:
        return Verdict.UNSAFE, f"{_NO_BODY}: {behaviour.exception} after {behaviour.tries} try"
    if status == HTTPStatus.OK and role == "any":
        return Verdict.SAFE, "the answer: its body has to be whole, strict JSON and a completion"
    return Verdict.UNSAFE, _AS_SUCCESS


def validate_status(
    status: int, *, role: Role = "any", contract: Contract | None = None, source: str = "", key: str = "status"
) -> Behaviour:
    """The client's behaviour for `status`, for use where a status is configured.

    Raises UnsafeForGymError for one that is retried without bound, taken for a success, or
    useless in its `role`; `source` and `key` go into its message. Otherwise what `judge_status` raises.
    """
    contract = contract or load_contract()
    finding = judge_status(status, role=role, contract=contract, source=source, key=key)
    if finding.verdict is Verdict.UNSAFE:
        raise UnsafeForGymError([finding])
    return contract.status(status)
