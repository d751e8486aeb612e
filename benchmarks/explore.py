"""How many drawn scenarios a minute run in virtual time, on one core: `uv run python benchmarks/explore.py [SEEDS]`.

CPU time is counted, so that what else the machine does matters less.
"""

import sys
import tempfile
import time
from pathlib import Path

from gymproof.chaos.explore.campaign import explore, virtual_level
from gymproof.chaos.explore.draw import draw
from gymproof.chaos.virtual.core import GYM_ROUTER_CORE, load_core


def main() -> None:
    """Run the seeds and print the rate."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    level = virtual_level(load_core(GYM_ROUTER_CORE))
    began, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as out:
        tally = explore(
            range(seeds), draw, level, out=Path(out), budget_s=3600.0, most_findings=seeds, replay="{file} {seed}"
        )
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    counts = ", ".join(f"{count} {status}" for status, count in sorted(tally.statuses.items()))
    print(f"{tally.done} schedules ({counts})")
    print(f"{60 * tally.done / cpu:.0f} a minute of CPU time, {60 * tally.done / wall:.0f} a minute")


if __name__ == "__main__":
    main()
