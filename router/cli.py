"""`gym-router`: the command. Reads options and a file, starts the router, stops it on SIGTERM or SIGINT."""

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from .config import ConfigError, RouterConfig, make_config, read_file
from .core import Router
from .events import LOG, configure_logging
from .impl import new_event_loop
from .nodelist import NodeListError, read_nodelist
from .options import NODELIST, REPLICA, with_options
from .placement import Placed, place
from .sockets import BindError, bind_both
from .topology import TopologyError, read_topology
from .topology_formats import FORMATS, render
from .urls import authority

BAD_INPUT = 2
SIGNALLED = 128  # and the signal's number, as a shell has it
GC_THRESHOLD = 50_000
MEMBERS = {"backends", "backends_file", "prefill_backends"}

app = typer.Typer(
    help="One stable URL in front of a vLLM fleet.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


@app.callback()
def root() -> None:
    """One stable URL in front of a vLLM fleet, made for NeMo-Gym's client."""


@app.command()
@with_options
def serve(**options: Any) -> None:
    """Serve until SIGTERM or SIGINT; then every request in flight gets its answer.

    Options win over the file. Exit code 0 after a clean stop, 2 for bad input or a taken port; a second signal drops
    what is still in flight, and the exit code is 128 and its number.
    """
    config, topology, nodelist, replica = (options.pop(name) for name in ("config", "topology", "nodelist", "replica"))
    given = {name: value for name, value in options.items() if value is not None}
    run(given, config, lambda named: from_topology(topology, nodelist, replica, named))


@app.command(name="topology")
def show_topology(
    file: Annotated[Path, typer.Argument(help="TOML file that describes a deployment.")],
    *,
    nodelist: Annotated[str | None, typer.Option(help=NODELIST)] = None,
    replica: Annotated[int | None, typer.Option(help=REPLICA)] = None,
    format: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "urls",  # noqa: A002
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write there, in one step. [stdout]")] = None,
) -> None:
    """Show what follows from a deployment: URLs of engines, routers and admin ports. Exit code 2 for bad input."""
    try:
        text = render(placed(file, nodelist, replica), format)
        if output is not None:
            replace_file(output, text)
    except (TopologyError, OSError) as error:
        refuse(error)
    if output is None:
        typer.echo(text, nl=False)


def from_topology(
    file: Path | None, nodelist: str | None, replica: int | None, named: Collection[str]
) -> dict[str, Any]:
    """The settings that a deployment gives; none without one. Raises ConfigError, also if `named` ones contradict."""
    if file is None:
        if nodelist is not None or replica is not None:
            raise ConfigError("--nodelist and --replica need --topology FILE beside them")
        return {}
    if others := MEMBERS & set(named):
        raise ConfigError(f"{min(others)} names backends, and so does --topology; one of them would be right")
    try:
        return placed(file, nodelist, replica).router_settings()
    except TopologyError as error:
        raise ConfigError(str(error) if str(file) in str(error) else f"{file}: {error}") from None


def placed(file: Path, nodelist: str | None, replica: int | None) -> Placed:
    """A file's deployment on its nodes. Raises TopologyError."""
    deployment = read_topology(file)
    try:
        return place(deployment, () if nodelist is None else read_nodelist(nodelist), replica)
    except (NodeListError, TopologyError) as error:
        raise TopologyError(f"{file}: {error}") from None


def replace_file(path: Path, text: str) -> None:
    """Write so that a reader, who may be watching, sees the old text or the new. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, "utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def refuse(why: object) -> NoReturn:
    """End with the exit code of bad input."""
    typer.echo(f"gym-router: {why}", err=True)
    raise typer.Exit(BAD_INPUT)


def run(given: dict[str, Any], config: Path | None, deployed: Callable[[Collection[str]], dict[str, Any]]) -> None:
    """Start from options, else an optional file, else what a deployment gives; ends with the process's exit code."""
    if "backend" in given:
        given["backends"] = tuple(given.pop("backend"))
    if "prefill_backend" in given:
        given["prefill_backends"] = tuple(given.pop("prefill_backend"))
    in_file: dict[str, Any] = {}
    try:
        in_file = {} if config is None else read_file(config)
        given = {key: value for key, value in deployed(in_file | given).items() if key not in in_file} | given
        settings = effective_config(given, in_file, str(config))
        configure_logging(settings.log_format)
        router = Router(settings)
        sockets = bind_both(settings)
    except (ConfigError, BindError) as error:
        where = f"{origin(error.key, given, in_file, str(config))}: " if error.key else ""
        refuse(f"{where}{error}")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        code = runner.run(run_until_signal(router, *sockets))
    raise typer.Exit(code)


def effective_config(given: dict[str, Any], in_file: dict[str, Any], file: str) -> RouterConfig:
    """The configuration from options and what is in a file; options win. Raises ConfigError."""
    if {"backends", "backends_file"} & given.keys():
        in_file = {key: value for key, value in in_file.items() if key not in {"backends", "backends_file"}}
    return make_config({**in_file, **given}, lambda key: origin(key, given, in_file, file))


def origin(key: str, given: dict[str, Any], in_file: dict[str, Any], file: str) -> str:
    """Where a setting came from, or would: the file and its key, or the option."""
    if key in in_file and key not in given:
        return f"{file}: {key}"
    option = {"backends": "backend", "prefill_backends": "prefill_backend"}.get(key, key)
    return f"--{option.replace('_', '-')}"


async def run_until_signal(router: Router, listener: Any, admin: Any) -> int:
    """Serve; drain on the first signal, cut everything off on the second. The exit code."""
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    await router.start(listener, admin)
    # Requests leave no cycles behind, and what there is now stays: collecting less often saves a tenth of the CPU time.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    _announce(router, listener, admin)
    await signals.get()
    LOG.info("draining: %s requests in flight", router.tally.in_flight)
    drained = asyncio.create_task(router.stop())
    hurried = asyncio.create_task(signals.get())
    await asyncio.wait({drained, hurried}, return_when=asyncio.FIRST_COMPLETED)
    if drained.done():
        hurried.cancel()
        LOG.info("stopped")
        return 0
    LOG.error("stopped by a second signal: %s requests dropped", router.tally.in_flight)
    drained.cancel()
    await asyncio.wait({drained})
    await router.stop(drain=False)
    return SIGNALLED + hurried.result()


def _announce(router: Router, listener: Any, admin: Any) -> None:
    host, port = listener.getsockname()[:2]
    url = f"http://{authority(host, port)}/v1"
    fields = {"url": url, **router.config.model_dump(mode="json")}
    fields |= {"port": port, "max_in_flight": router.listener.limits.max_in_flight}
    fields["backends"] = [shard.url for shard in router.shards()]
    if admin is not None:
        fields["admin_port"] = admin.getsockname()[1]
    LOG.info("serving", extra={"fields": fields})
    typer.echo(f"gym-router: serving {url}")
    if admin is not None:
        typer.echo(f"gym-router: admin   http://{authority(*admin.getsockname()[:2])}")


def main() -> None:
    """Entry point of the `gym-router` command."""
    app()
