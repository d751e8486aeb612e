"""Start a deployment's engines on a Ray cluster, with the router as an actor: `ray_driver.py FILE MODEL`.

Every alive node with the deployment's GPUs is taken, in the order of addresses, so that ranks stay where they are.
"""

import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import ray

from gymproof.router.actor import start_router_actor
from gymproof.router.placement import Rank, place
from gymproof.router.topology import read_topology


@ray.remote(max_retries=-1)  # a node that comes back gets its engine back
def serve(model: str, rank: Rank) -> int:
    """Run one engine; Ray shows it the GPUs that it may use. It ends with Ray's worker, however that ends."""
    parallel = ["--tensor-parallel-size", str(len(rank.gpus))]
    command = ["vllm", "serve", model, "--host", "0.0.0.0", "--port", str(rank.port), *parallel]
    return subprocess.run(["setpriv", "--pdeathsig", "TERM", *command], check=False).returncode


def main(file: Path, model: str) -> None:
    """Serve until the engines end."""
    ray.init(address="auto")
    deployment = read_topology(file)
    alive = {
        node["NodeManagerAddress"]
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("GPU", 0) >= deployment.gpus_per_node
    }
    needed = deployment.replicas * deployment.nodes_of_a_replica
    if deployment.type == "disaggregated" or deployment.enable_expert_parallel:
        sys.exit(f"{file}: this driver starts independent engines; engines.sh starts groups and prefill/decode pairs")
    placed = place(deployment, sorted(alive, key=ip_address)[:needed])
    # By address: Ray gives a node that comes back another id.
    engines = [
        serve.options(num_gpus=len(rank.gpus), resources={f"node:{rank.node}": 0.001}).remote(model, rank)
        for rank in placed.ranks
    ]
    # No controller here says who serves: the router finds out by itself.
    with start_router_actor(backend_urls=placed.urls("backend"), health_managed=False) as router:
        print(f"policy_base_url for NeMo-Gym: {router.base_url}", flush=True)
        ray.get(engines)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
