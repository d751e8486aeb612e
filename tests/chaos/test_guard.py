"""What the guard takes along: process groups are in `test_fleet.py`."""

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gymproof.chaos.guard import Guard
from gymproof.chaos.waiting import wait_until


def test_a_folder_goes_with_its_guard_and_all_that_is_in_it():
    with Guard() as guard:
        folder = Path(guard.folder("gymproof-test-"))
        (folder / "remains").mkdir()
        (folder / "remains" / "log").write_text("x")
        assert folder.name.startswith("gymproof-test-")

    assert not folder.exists()


@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), 9)"])
def test_a_folder_goes_with_a_harness_that_dies(end):
    harness = textwrap.dedent(f"""
        import os
        from gymproof.chaos.guard import Guard
        with Guard() as guard:
            print(guard.folder("gymproof-test-"), flush=True)
            {end}
        """)
    done = subprocess.run([sys.executable, "-c", harness], stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    folder = Path(done.stdout.strip())

    assert folder.name.startswith("gymproof-test-")
    assert asyncio.run(wait_until(lambda: not folder.exists(), 20.0)), "the folder outlives its harness"


def test_a_folder_that_is_gone_already_is_no_error():
    with Guard() as guard:
        Path(guard.folder("gymproof-test-")).rmdir()
