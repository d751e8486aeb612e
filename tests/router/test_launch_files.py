"""The launch files under docs/examples: they parse, start each engine as vLLM takes it, and run on simulated shards.

A node is a loopback address, on which the stand-ins for SLURM and vLLM (tests/standins) start what belongs to it.
"""

import argparse
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
import psutil
import pytest

from gymproof.router.placement import place
from gymproof.router.topology import read_topology
from gymproof.router.topology_formats import render

TESTS = Path(__file__).parents[1]
EXAMPLES = TESTS.parent / "docs" / "examples"
STANDINS = TESTS / "standins"
SCRIPTS = sorted([*EXAMPLES.glob("*.sh"), *EXAMPLES.glob("*.sbatch")])
TOPOLOGIES = sorted(EXAMPLES.glob("*.toml"))
START_S = 60.0
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


def started(path, folder):
    """The ranks of an example, and by node and port what engines.sh has started: its GPUs, side channel, arguments."""
    deployment = read_topology(path)
    count = deployment.replicas * deployment.nodes_of_a_replica
    placed = place(deployment, [f"n{i}" for i in range(count)])
    (folder / "bin").mkdir()
    (folder / "bin" / "vllm").write_text(NOTE)
    (folder / "bin" / "vllm").chmod(0o755)
    (folder / "ranks.txt").write_text(render(placed, "ranks"))
    (folder / "noted").mkdir()
    command = ["srun", "bash", EXAMPLES / "engines.sh", folder / "ranks.txt", "a/model"]
    env = job(f"n[0-{count - 1}]", folder / "bin")
    subprocess.run(command, cwd=folder / "noted", env=env, check=True, timeout=START_S)
    engines = {}
    for noted in (folder / "noted").iterdir():
        node, gpus, side_channel, *words = noted.read_text().rstrip("\0").split("\0")
        told = vllm_serve().parse_args(words)
        assert (node, told.port) not in engines
        engines[node, told.port] = gpus, side_channel, told
    return placed.ranks, engines


@pytest.mark.parametrize("path", TOPOLOGIES, ids=name)
def test_every_engine_is_started_once_on_its_node_with_its_gpus(path, tmp_path):
    ranks, engines = started(path, tmp_path)

    assert engines.keys() == {(rank.node, rank.port) for rank in ranks}
    for rank in ranks:
        gpus, side_channel, told = engines[rank.node, rank.port]
        assert (told.model_tag, told.host, told.tensor_parallel_size) == ("a/model", "0.0.0.0", len(rank.gpus))
        assert gpus.split(",") == [str(gpu) for gpu in rank.gpus]
        assert (told.kv_transfer_config is None, side_channel == "") == (rank.role == "backend",) * 2


def test_the_engines_of_a_group_are_its_ranks_each_once(tmp_path):
    _, engines = started(EXAMPLES / "wide_ep.toml", tmp_path)

    told = {where: arguments for where, (_, _, arguments) in engines.items()}
    assert sorted((engine.data_parallel_rank, *where) for where, engine in told.items()) == [
        (rank, f"n{rank // 8}", 8100 + rank % 8) for rank in range(16)
    ]
    assert {
        (engine.data_parallel_size, engine.data_parallel_address, engine.data_parallel_rpc_port)
        for engine in told.values()
    } == {(16, "n0", 13345)}
    assert all(engine.enable_expert_parallel for engine in told.values())


def test_the_engines_of_a_pair_have_side_channels_of_their_own(tmp_path):
    _, engines = started(EXAMPLES / "disaggregated.toml", tmp_path)

    assert sorted((*where, side_channel) for where, (_, side_channel, _) in engines.items()) == [
        (f"n{node}", first + rank, str(5600 + rank)) for node, first in enumerate((8100, 8200) * 2) for rank in (0, 1)
    ]
    assert {told.kv_transfer_config["kv_role"] for _, _, told in engines.values()} == {"kv_both"}


# Jobs


def job(nodelist, commands):
    path = f"{commands}:{STANDINS}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    job = {"PATH": path, "PYTHONPATH": str(STANDINS), "SLURM_JOB_NODELIST": nodelist, "SLURM_JOB_ID": "7"}
    return os.environ | job


def free_ports(count, hosts):
    """The first of a row of ports that are free now on every host."""
    for first in range(20000 + os.getpid() % 5000, 32000, count):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for host in hosts:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server((host, port)))
            return first
    pytest.fail("no row of free ports")


def in_session(leader):
    """The processes of a session."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class Job:
    """A launch file under way, in a folder of its own."""

    def __init__(self, script, nodes, folder, **topology):
        for path in EXAMPLES.iterdir():
            shutil.copy(path, folder)
        self.folder = folder
        values = {key: orjson.dumps(value).decode() for key, value in topology.items()}
        (folder / "here.toml").write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
        env = job(nodes, folder) | {"MODEL": "tiny", "TOPOLOGY": "here.toml"}
        with (folder / "output").open("wb") as output:
            self.process = subprocess.Popen(
                ["bash", script], cwd=folder, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """What SLURM does at a job's end, first with SIGTERM: nothing is left then."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(END_S)
        _, left = psutil.wait_procs(in_session(self.process.pid), timeout=END_S)
        for process in left:
            process.kill()
        assert left == []

    @property
    def output(self):
        return (self.folder / "output").read_text()

    def until(self, question, what):
        """What `question` answers once it is something; errors of a server that is not there yet are no answer."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"the job ended before {what}: {self.output}"
            with contextlib.suppress(OSError, urllib.error.HTTPError):
                if found := question():
                    return found
            time.sleep(0.1)
        return pytest.fail(f"not within {START_S} s: {what}; {self.output}")

    def router_urls(self):
        lines = [line for line in self.output.splitlines() if line.startswith("policy_base_url")]
        return lines[0].split(": ")[1].split() if lines else []

    def legs(self, node, port):
        """The halves of a request that an engine has been asked for."""
        log = (self.folder / f"shard.{node}.{port}.jsonl").read_text()
        return {line["leg"] for line in map(orjson.loads, log.splitlines()) if "leg" in line}


def ask(url):
    body = orjson.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})
    request = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return orjson.loads(reply.read())["choices"]


@pytest.mark.slow
def test_a_job_of_two_nodes_serves_through_one_router(tmp_path):
    nodes = ["127.0.0.1", "127.0.0.2"]
    first = free_ports(4, nodes)
    topology = {"type": "multi_node", "gpus_per_node": 2, "replicas": 2}
    ports = {"router_port": first, "router_admin_port": first + 1, "backend_port": first + 2}
    with Job("multi_node.sbatch", "127.0.0.[1-2]", tmp_path, **topology, **ports) as running:
        engines = [(node, port) for node in nodes for port in (first + 2, first + 3)]
        for node, port in engines:
            running.until(lambda url=f"http://{node}:{port}/v1": ask(url), f"{node}:{port} serves")
        (url,) = running.until(running.router_urls, "the job says where the router is")
        running.until(lambda: ask(url), "the router serves")
        with urllib.request.urlopen(f"http://127.0.0.1:{first + 1}/metrics", timeout=10) as scrape:
            metrics = scrape.read().decode()

    assert all(f"{node}:{port}" in metrics for node, port in engines)


@pytest.mark.slow
def test_a_job_of_pairs_serves_in_two_legs_through_each_router(tmp_path):
    nodes = [f"127.0.0.{number}" for number in range(1, 5)]
    first = free_ports(5, nodes)
    names = ("router_port", "prefill_port", "decode_port", "decode_sidecar_port", "nixl_side_channel_port")
    ports = {name: first + number for number, name in enumerate(names)}
    topology = {"type": "disaggregated", "gpus_per_node": 1, "replicas": 2}
    with Job("disaggregated.sbatch", "127.0.0.[1-4]", tmp_path, **topology, **ports) as running:
        urls = running.until(running.router_urls, "the job says where its routers are")
        assert urls == [f"http://{node}:{first}/v1" for node in nodes[::2]]
        for url, prefill, decode in zip(urls, nodes[::2], nodes[1::2], strict=True):
            serves_in_two_legs(running, url, (prefill, first + 1), (decode, first + 2))


def serves_in_two_legs(running, url, prefill, decode):
    def served():
        return ask(url) and [running.legs(*engine) for engine in (prefill, decode)] == [{"prefill"}, {"decode"}]

    running.until(served, f"{url} has a request served by {prefill} and then {decode}")
