"""The launch files under docs/examples: they parse, start each engine as vLLM takes it, and run on simulated shards.

A node is a loopback address, on which the stand-ins for SLURM and vLLM (tests/standins) start what belongs to it.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import urllib.request
from functools import partial
from pathlib import Path

import orjson
import psutil
import pytest

from gymproof.router.placement import place
from gymproof.router.topology import read_topology
from gymproof.router.topology_formats import render

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SCRIPTS = sorted([*EXAMPLES.glob("*.sh"), *EXAMPLES.glob("*.sbatch")])
TOPOLOGIES = sorted(EXAMPLES.glob("*.toml"))
END_S = 20.0


def name(path):
    return path.name


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_a_script_has_no_syntax_error(path):
    subprocess.run(["bash", "-n", path], check=True)
    if shellcheck := shutil.which("shellcheck"):
        subprocess.run([shellcheck, path], check=True)


# What the engines are told


def vllm_serve():
    """The options of `vllm serve` (0.32) that the launch files use."""
    parser = argparse.ArgumentParser("vllm", allow_abbrev=False)
    parser.add_argument("command", choices=["serve"])
    for option in ("model_tag", "--host", "--data-parallel-address"):
        parser.add_argument(option)
    parser.add_argument("--kv-transfer-config", type=orjson.loads)
    for option in (
        "port",
        "tensor-parallel-size",
        "data-parallel-size",
        "data-parallel-rank",
        "data-parallel-rpc-port",
    ):
        parser.add_argument(f"--{option}", type=int)
    parser.add_argument("--enable-expert-parallel", action="store_true")
    return parser


NOTE = (
    '#!/bin/sh\nprintf "%s\\0" "$SLURMD_NODENAME" "$CUDA_VISIBLE_DEVICES" "$VLLM_NIXL_SIDE_CHANNEL_PORT" "$@" > "$$"\n'
)


@pytest.fixture
def started(launching, tmp_path):
    """Of an example its ranks, and by node and port what engines.sh starts: GPUs, side channel, arguments."""
    return partial(start_engines, launching, tmp_path)


def start_engines(launching, folder, path):
    deployment = read_topology(path)
    count = deployment.replicas * deployment.nodes_of_a_replica
    placed = place(deployment, [f"n{i}" for i in range(count)])
    (folder / "bin").mkdir()
    (folder / "bin" / "vllm").write_text(NOTE)
    (folder / "bin" / "vllm").chmod(0o755)
    (folder / "ranks.txt").write_text(render(placed, "ranks"))
    (folder / "noted").mkdir()
    command = ["srun", "bash", EXAMPLES / "engines.sh", folder / "ranks.txt", "a/model"]
    env = job(launching, f"n[0-{count - 1}]")
    env["PATH"] = f"{folder / 'bin'}:{env['PATH']}"
    subprocess.run(command, cwd=folder / "noted", env=env, check=True, timeout=END_S)
    engines = {}
    for noted in (folder / "noted").iterdir():
        node, gpus, side_channel, *words = noted.read_text().rstrip("\0").split("\0")
        told = vllm_serve().parse_args(words)
        assert (node, told.port) not in engines
        engines[node, told.port] = gpus, side_channel, told
    return placed.ranks, engines


@pytest.mark.parametrize("path", TOPOLOGIES, ids=name)
def test_every_engine_is_started_once_on_its_node_with_its_gpus(path, started):
    ranks, engines = started(path)

    assert engines.keys() == {(rank.node, rank.port) for rank in ranks}
    for rank in ranks:
        gpus, side_channel, told = engines[rank.node, rank.port]
        assert (told.model_tag, told.host, told.tensor_parallel_size) == ("a/model", "0.0.0.0", len(rank.gpus))
        assert gpus.split(",") == [str(gpu) for gpu in rank.gpus]
        assert (told.kv_transfer_config is None, side_channel == "") == (rank.role == "backend",) * 2


def test_the_engines_of_a_group_are_its_ranks_each_once(started):
    _, engines = started(EXAMPLES / "wide_ep.toml")

    told = {where: arguments for where, (_, _, arguments) in engines.items()}
    assert sorted((engine.data_parallel_rank, *where) for where, engine in told.items()) == [
        (rank, f"n{rank // 8}", 8100 + rank % 8) for rank in range(16)
    ]
    assert {
        (engine.data_parallel_size, engine.data_parallel_address, engine.data_parallel_rpc_port)
        for engine in told.values()
    } == {(16, "n0", 13345)}
    assert all(engine.enable_expert_parallel for engine in told.values())


def test_the_engines_of_a_pair_have_side_channels_of_their_own(started):
    _, engines = started(EXAMPLES / "disaggregated.toml")

    assert sorted((*where, side_channel) for where, (_, side_channel, _) in engines.items()) == [
        (f"n{node}", first + rank, str(5600 + rank)) for node, first in enumerate((8100, 8200) * 2) for rank in (0, 1)
    ]
    assert {told.kv_transfer_config["kv_role"] for _, _, told in engines.values()} == {"kv_both"}


# Jobs


def job(launching, nodelist):
    """A job's environment."""
    slurm = {"SLURM_JOB_NODELIST": nodelist, "SLURM_JOB_ID": "7"}
    return os.environ | {"PATH": launching.path, "PYTHONPATH": str(launching.standins)} | slurm


def in_session(leader):
    """The processes of a session."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@pytest.fixture
def submit(launching, tmp_path):
    """Starts a job on a deployment. What SLURM does at its end, first with SIGTERM, leaves nothing."""

    @contextlib.contextmanager
    def running(script, nodelist, **deployment):
        for path in EXAMPLES.iterdir():
            shutil.copy(path, tmp_path)
        lines = [f"{key} = {orjson.dumps(value).decode()}\n" for key, value in deployment.items()]
        (tmp_path / "here.toml").write_text("".join(lines))
        mine = {"MODEL": "tiny", "TOPOLOGY": "here.toml", "SHARD_LOGS": str(tmp_path)}
        launched = launching.Launched(["bash", script], tmp_path, job(launching, nodelist) | mine)
        leader = launched.process.pid
        try:
            yield launched
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGTERM)
            launched.process.wait(END_S)
            _, left = psutil.wait_procs(in_session(leader), timeout=END_S)
            for process in left:
                process.kill()
        assert left == []

    return running


@pytest.mark.slow
def test_a_job_of_two_nodes_serves_through_one_router(launching, submit):
    nodes = ["127.0.0.1", "127.0.0.2"]
    first = launching.free_ports(4, nodes)
    deployment = {"type": "multi_node", "gpus_per_node": 2, "replicas": 2}
    ports = {"router_port": first, "router_admin_port": first + 1, "backend_port": first + 2}
    with submit("multi_node.sbatch", "127.0.0.[1-2]", **deployment, **ports) as running:
        engines = [f"{node}:{port}" for node in nodes for port in (first + 2, first + 3)]
        for engine in engines:
            running.until(lambda url=f"http://{engine}/v1": launching.ask(url), f"{engine} serves")
        (url,) = running.router_urls()
        running.until(lambda: launching.ask(url), "the router serves")
        with urllib.request.urlopen(f"http://127.0.0.1:{first + 1}/metrics", timeout=10) as scrape:
            metrics = scrape.read().decode()

    assert all(engine in metrics for engine in engines)


@pytest.mark.slow
def test_a_job_of_pairs_serves_in_two_legs_through_each_router(launching, submit, tmp_path):
    nodes = [f"127.0.0.{number}" for number in range(1, 5)]
    names = ("router_port", "prefill_port", "decode_port", "decode_sidecar_port", "nixl_side_channel_port")
    first = launching.free_ports(len(names), nodes)
    ports = {name: first + number for number, name in enumerate(names)}
    deployment = {"type": "disaggregated", "gpus_per_node": 1, "replicas": 2}

    def legs(node, port):
        """The halves of a request that an engine has been asked for."""
        log = (tmp_path / f"{node}.{port}.jsonl").read_text()
        return {line["leg"] for line in map(orjson.loads, log.splitlines()) if "leg" in line}

    with submit("disaggregated.sbatch", "127.0.0.[1-4]", **deployment, **ports) as running:
        urls = running.router_urls()
        assert urls == [f"http://{node}:{first}/v1" for node in nodes[::2]]
        for url, prefill, decode in zip(urls, nodes[::2], nodes[1::2], strict=True):
            running.until(
                lambda url=url, prefill=prefill, decode=decode: (
                    launching.ask(url)
                    and (legs(prefill, first + 1), legs(decode, first + 2)) == ({"prefill"}, {"decode"})
                ),
                f"{url} has a request served by {prefill} and then {decode}",
            )
