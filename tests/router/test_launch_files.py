"""The launch files under docs/examples: they parse, every command in them is one, and one runs on simulated shards."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import orjson
import pytest
import typer.main

from gymproof.router.cli import app
from gymproof.router.placement import place
from gymproof.router.topology import read_topology

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SCRIPTS = sorted([*EXAMPLES.glob("*.sh"), *EXAMPLES.glob("*.sbatch")])
TOPOLOGIES = sorted(EXAMPLES.glob("*.toml"))
START_S = 60.0


def name(path):
    return path.name


@pytest.mark.parametrize("path", TOPOLOGIES, ids=name)
def test_an_example_deployment_is_a_possible_one(path):
    deployment = read_topology(path)
    count = deployment.replicas * deployment.nodes_of_a_replica

    assert place(deployment, [f"n{i}" for i in range(count)]).ranks


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_a_script_has_no_syntax_error(path):
    subprocess.run(["bash", "-n", path], check=True)
    if shellcheck := shutil.which("shellcheck"):
        subprocess.run([shellcheck, path], check=True)


@pytest.mark.parametrize("path", [path for path in SCRIPTS if path.suffix == ".sbatch"], ids=name)
def test_every_router_command_in_a_script_is_one(path, tmp_path):
    """The script runs with commands that only note their arguments; the real command line then parses these."""
    note = '#!/bin/sh\nprintf "%s\\0" "$@" > "$NOTES/$$"\n'
    for command, script in {"gym-router": note, "srun": PASS_ON}.items():
        (tmp_path / command).write_text(script)
        (tmp_path / command).chmod(0o755)
    notes = tmp_path / "notes"
    notes.mkdir()
    # The variables that the noting command doesn't print
    given = {"ROUTER_URLS": "u", "ADMIN_URLS": "u", "ROUTER_NODES": "n0 n2", "MODEL": "m", "NOTES": str(notes)}
    subprocess.run(["bash", path], cwd=EXAMPLES, env=job(tmp_path, "n[0-1]") | given, check=True, timeout=START_S)

    commands = [noted.read_text().rstrip("\0").split("\0") for noted in notes.iterdir()]
    group = typer.main.get_command(app)
    assert {words[0] for words in commands} == {"serve", "topology"}
    for words in commands:
        group.commands[words[0]].make_context(words[0], words[1:]).close()


PASS_ON = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
[[ $1 == gym-router ]] && exec "$@"
exit 0
"""

SRUN = """#!/bin/bash
trap 'kill $(jobs -p)' TERM
while [[ $1 == --* ]]; do shift; done
for node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
    SLURMD_NODENAME=$node "$@" &
done
wait
"""

# A node is an address on loopback; the simulator listens on the first one, so that here it is told another.
VLLM = """#!{python}
import os, sys
from asyncio.base_events import BaseEventLoop
from gymproof.chaos.sim.api import main
from gymproof.chaos.sim.settings import parse
serve = BaseEventLoop.create_server
def on_node(loop, factory, host, port, **more):
    return serve(loop, factory, os.environ["SLURMD_NODENAME"], port, **more)
BaseEventLoop.create_server = on_node
main(parse(["--port", sys.argv[sys.argv.index("--port") + 1]]))
"""


def job(commands, nodelist):
    path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "SLURM_JOB_NODELIST": nodelist, "SLURM_JOB_ID": "7"}


def free_ports(count, hosts):
    """The first of a row of ports that are free now on every host."""
    for first in range(20000 + os.getpid() % 5000, 32000, count):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for host in hosts:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server((host, port)))
            return first
    pytest.fail("no row of free ports")


def ask(url):
    body = orjson.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})
    request = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return orjson.loads(reply.read())


def until(question, process, what):
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the job ended with {process.returncode} before {what}"
        with contextlib.suppress(OSError, urllib.error.HTTPError):
            if (found := question()) is not None:
                return found
        time.sleep(0.1)
    return pytest.fail(f"not within {START_S} s: {what}")


@pytest.mark.slow
def test_a_job_of_two_nodes_serves_through_one_router(tmp_path):
    nodes = ["127.0.0.1", "127.0.0.2"]
    first = free_ports(4, nodes)
    for path in EXAMPLES.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    topology = {"router_port": first, "router_admin_port": first + 1, "backend_port": first + 2}
    lines = [f"{key} = {value}" for key, value in topology.items()]
    lines += ['type = "multi_node"', "gpus_per_node = 2", "replicas = 2"]
    (tmp_path / "multi_node.toml").write_text("\n".join(lines))
    commands = tmp_path / "bin"
    commands.mkdir()
    hostnames = "#!/bin/sh\nprintf '127.0.0.1\\n127.0.0.2\\n'\n"
    for command, script in {"srun": SRUN, "scontrol": hostnames, "vllm": VLLM.format(python=sys.executable)}.items():
        (commands / command).write_text(script)
        (commands / command).chmod(0o755)
    process = subprocess.Popen(
        ["bash", "multi_node.sbatch"],
        cwd=tmp_path,
        env=job(commands, "127.0.0.[1-2]") | {"MODEL": "tiny"},
        start_new_session=True,
    )
    try:
        for node in nodes:
            for port in (first + 2, first + 3):
                until(lambda url=f"http://{node}:{port}/v1": ask(url), process, f"{node}:{port} serves")
        reply = until(lambda: ask(f"http://127.0.0.1:{first}/v1"), process, "the router serves")
        assert reply["choices"]
        with urllib.request.urlopen(f"http://127.0.0.1:{first + 1}/metrics", timeout=10) as scrape:
            metrics = scrape.read().decode()
        assert all(f"{node}:{port}" in metrics for node in nodes for port in (first + 2, first + 3))
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
