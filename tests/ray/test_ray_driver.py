"""docs/examples/ray_driver.py on nodes that claim a GPU: the stand-in for vLLM starts simulated shards there."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

ray = pytest.importorskip("ray", reason="needs the ray extra")

from ray.cluster_utils import Cluster  # noqa: E402

from gymproof.chaos.ray_cluster import Node  # noqa: E402

DRIVER = Path(__file__).parents[2] / "docs" / "examples" / "ray_driver.py"
NODES = ["127.0.0.2", "127.0.0.3"]
HEAD = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False, "dashboard_agent_listen_port": 0}
END_S = 30.0


@pytest.fixture(scope="module", autouse=True)
def cluster(launching, tmp_path_factory):
    """A head node for the driver, and a node on each address."""
    ray.shutdown()
    folder = tmp_path_factory.mktemp("shards")
    port = launching.free_ports(1, NODES)

    def add(node):
        env = {"PATH": launching.path, "SLURMD_NODENAME": node, "SHARD_LOGS": str(folder)}
        return started.add_node(num_cpus=1, num_gpus=1, node_ip_address=node, env_vars=env)

    started = Cluster(initialize_head=True, head_node_args=HEAD)
    nodes = {node: add(node) for node in NODES}
    stage = SimpleNamespace(add=add, nodes=nodes, started=started, port=port, folder=folder)
    try:
        yield stage
    finally:
        started.shutdown()
        for process in shards(stage):
            process.kill()


def shards(cluster):
    """The processes of the simulated shards."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if f"{cluster.folder}" in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@pytest.fixture
def driver(cluster, launching, tmp_path):
    """The driver, once all its engines answer; it is stopped by SIGTERM, if not before."""
    (tmp_path / "here.toml").write_text(
        f'type = "multi_node"\ngpus_per_node = 1\nreplicas = 2\nbackend_port = {cluster.port}\n'
    )
    env = os.environ | {"RAY_ADDRESS": cluster.started.address}
    # A shell's background job has SIGINT ignored, and so its children.
    argv = ["env", "--default-signal=INT", sys.executable, DRIVER, "here.toml", "tiny"]
    launched = launching.Launched(argv, tmp_path, env)
    try:
        for node in NODES:
            serves(launching, launched, node, cluster.port)
        yield launched
    finally:
        stop(launched, signal.SIGTERM)


def serves(launching, driver, node, port):
    driver.until(lambda: launching.ask(f"http://{node}:{port}/v1"), f"the engine of {node} serves")


def stop(driver, number):
    driver.process.send_signal(number)
    driver.process.wait(END_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_driver_serves_through_its_router_and_leaves_nothing(number, cluster, driver, launching):
    (url,) = driver.router_urls()
    assert driver.until(lambda: launching.ask(url), "the router serves")
    stop(driver, number)

    assert psutil.wait_procs(shards(cluster), timeout=END_S)[1] == []
    with pytest.raises(OSError, match="refused"):
        launching.ask(url)


def test_a_node_that_comes_back_gets_its_engine_back(cluster, driver, launching):
    lost = NODES[1]
    (url,) = driver.router_urls()
    doomed = Node(cluster.nodes[lost], actor=None).processes()
    cluster.started.remove_node(cluster.nodes[lost], allow_graceful=False)
    for process in doomed:  # its worker before its engine, whose end is no answer then
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert driver.until(lambda: launching.ask(url), "the router serves without it")
    cluster.nodes[lost] = cluster.add(lost)
    serves(launching, driver, lost, cluster.port)
