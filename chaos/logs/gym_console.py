"""NeMo-Gym's console: its `model_retry` and `request_retry` lines, among whatever else is printed there."""

import re

from .base import LogFormat, Reading, Sign, harm, numbered

_NAME = "NeMo-Gym console"
_MODEL = re.compile(r"\[model_retry url=(\S+) status=(\d+) kind=(\w+) try=(\d+) max_tries=(\d+) error_msg=(.*)")
_REQUEST = re.compile(r"\[request_retry url=(\S+) error=(\w+) retry=(\d+) elapsed_s=([\d.]+)\]")
_BEGINS = ("[model_retry ", "[request_retry ")
_UNTIMED = "the console's lines carry no time and no call: how they follow one another in one call is not known"


def _recognises(text: str) -> bool:
    return any(begin in text for begin in _BEGINS)


def _read(text: str, file: str) -> Reading:
    """Lines of one kind are one sign, at the line that got furthest: a run that hangs prints thousands."""
    reading = Reading(file, _NAME, gaps=[_UNTIMED])
    furthest: dict[tuple[str, str], tuple[int, Sign]] = {}
    for number, line in numbered(text):
        begin = next((begin for begin in _BEGINS if begin in line), None)
        if begin is None:
            reading.ignored += 1
            continue
        found = _sign(line[line.index(begin) :], f"{file}:{number}")
        if found is None:
            reading.broken(number, line)
            continue
        key, tries, sign = found
        if key not in furthest or tries >= furthest[key][0]:
            furthest[key] = tries, sign
    reading.signs = [sign for _, sign in furthest.values()]
    return reading


def _sign(line: str, where: str) -> tuple[tuple[str, str], int, Sign] | None:
    """What kind of line it is, how many tries it tells of, and the sign."""
    if model := _MODEL.match(line):
        url, status, kind, tries, _, message = model.groups()
        shard = _netloc(url)
        says = f"{url} answered {status} ({kind}), try {tries}: {message.rstrip(']')}"
        return (url, status), int(tries), Sign(where, says, shard, harm=harm("status", status=int(status)))
    if request := _REQUEST.match(line):
        url, error, tries, elapsed = request.groups()
        says = f"{url}: {error}, retry {tries} after {elapsed} s"
        return (url, error), int(tries), Sign(where, says, _netloc(url), harm=harm("kill", process="group"))
    return None


def _netloc(url: str) -> str:
    return url.rsplit("//", maxsplit=1)[-1].split("/", maxsplit=1)[0]


GYM_CONSOLE = LogFormat(_recognises, _read)
