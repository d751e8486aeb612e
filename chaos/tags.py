"""The tag by which one call is recognised on every wire it crosses.

It stands in the text of the newest user message, since that is what every router passes on, even those that rewrite
the request. `/tokenize` of a turn carries the tag of its turn: (tag, path) names a call.
"""

import re

_TAG = re.compile(rb"\[gymproof:call=([\w.-]+)\]")


def tag(call: str) -> str:
    """The text to put into the newest user message of call `call`."""
    return f"[gymproof:call={call}]"


def call_of(body: bytes) -> str:
    """The newest call tag in a request body, "" if it has none."""
    found = _TAG.findall(body)
    return found[-1].decode() if found else ""
