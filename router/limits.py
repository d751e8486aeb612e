"""Open files: each request under way needs two sockets, so the limit on them bounds the requests."""

import resource

from .config import ConfigError

RESERVED_FILES = 128
FILES_PER_REQUEST = 2
LEAST_IN_FLIGHT = 256


def raise_file_limit() -> int:
    """Raise the soft limit on open files to the hard one; the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def in_flight_limit(files: int, wanted: int | None) -> int:
    """How many requests may be under way with `files` open files, `wanted` being the configured number.

    Raises ConfigError when the files do not carry what is wanted, or hardly anything.
    """
    carried = (files - RESERVED_FILES) // FILES_PER_REQUEST
    needed = LEAST_IN_FLIGHT if wanted is None else wanted
    if carried < needed:
        files_needed = needed * FILES_PER_REQUEST + RESERVED_FILES
        raise ConfigError(
            f"too few open files: the hard limit is {files}, and {needed} requests in flight need {files_needed}; "
            "raise it (ulimit -Hn, LimitNOFILE) or lower max_in_flight",
            "max_in_flight",
        )
    return carried if wanted is None else wanted
