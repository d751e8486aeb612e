"""Is a status safe to answer NeMo-Gym with? Decided from the contract alone."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal

from .contract import Behaviour, Contract, Handling, load_contract
from .findings import Finding, UnsafeForGymError, Verdict

Role = Literal["retry", "give_up", "any"]

SLEEP_S = 0.5  # seconds between two tries of the client
CLIENT_IDLE_S = 15.0  # seconds that the client keeps an idle connection for its next request
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
_RETRY = "500 for a failure that another try may mend"
_GIVE_UP = "409 for one that no try can"
_RIGHT: Mapping[Role, str] = {"retry": f"{_RETRY}.", "give_up": f"{_GIVE_UP}.", "any": f"{_RETRY}, {_GIVE_UP}."}


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
    verdict, problem = _judge(status, contract.status(status), role)
    return Finding(verdict, source, key, status, problem, "" if verdict is Verdict.SAFE else _RIGHT[role])


def _check_question(status: Any, role: Any) -> None:
    if isinstance(status, bool) or not isinstance(status, int):
        raise TypeError(f"a status is a whole number such as 409, not {status!r}")
    if role not in _RIGHT:
        raise ValueError(f"unknown role {role!r}; known: {', '.join(_RIGHT)}")


def _judge(status: int, behaviour: Behaviour, role: Role) -> tuple[Verdict, str]:
    if behaviour.handling is Handling.UNBOUNDED:
        return Verdict.UNSAFE, _UNBOUNDED
    if behaviour.handling is Handling.HANGS:
        return Verdict.UNSAFE, f"the call never ends: {behaviour}"
    if status < _FIRST_ERROR:
        return _judge_success(status, behaviour, role)
    return _judge_error(status, behaviour, role)


def _judge_error(status: int, behaviour: Behaviour, role: Role) -> tuple[Verdict, str]:
    tries = behaviour.tries or 0
    if tries > 1:
        bounded = f"tried {tries} times within {(tries - 1) * SLEEP_S:.1f} s of waiting, then raised"
        if role == "give_up":
            return Verdict.CAUTION, f"{bounded}: the client repeats what was meant as final"
        return Verdict.SAFE, bounded
    if role == "retry":
        return Verdict.UNSAFE, "not retried: the rollout is lost where another try could have saved it"
    if status == HTTPStatus.BAD_REQUEST:
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
