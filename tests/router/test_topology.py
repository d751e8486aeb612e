"""Deployments: what is refused, how ranks and URLs follow, and each format."""

import re
import subprocess
from collections import Counter

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gymproof.router.backends_file import read_backends
from gymproof.router.cli import app
from gymproof.router.config import ConfigError
from gymproof.router.placement import place
from gymproof.router.topology import TopologyError, make_deployment
from gymproof.router.topology_formats import llm_d, render

MULTI = {"type": "multi_node", "gpus_per_node": 8}
SPLIT = {"type": "disaggregated", "gpus_per_node": 8}


def placed(values, nodes=None, replica=None):
    deployment = make_deployment(values)
    count = deployment.replicas * deployment.nodes_of_a_replica
    return place(deployment, nodes or [f"n{i}" for i in range(count)], replica)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"type": "cluster"}, "type is 'cluster'; known: single_node, multi_node, disaggregated"),
        ({}, "type is None"),
        ({"type": "multi_node"}, "gpus_per_node: Field required"),
        (MULTI | {"tensor_parallel": 16}, "tensor_parallel 16 is over the 8 GPUs of a node"),
        (MULTI | {"tensor_parallel": 3}, "leaves 2 of 8 GPUs"),
        (MULTI | {"gpus_per_node": 0}, "gpus_per_node: .*greater than or equal to 1.*got 0"),
        (MULTI | {"replicas": True}, "replicas"),
        (MULTI | {"data_parallel": 8}, "data_parallel 8 needs enable_expert_parallel"),
        (MULTI | {"data_parallel": 4, "enable_expert_parallel": True}, "is not the 8 engines of a backend group"),
        (MULTI | {"router_port": 8103}, "router_port 8103 and backend_port 8100-8107 overlap"),
        (MULTI | {"router_admin_port": 8000}, "router_port 8000 and router_admin_port 8000 overlap"),
        (MULTI | {"backend_port": 65530}, "backend_port 65530 and the 7 ports after it pass 65535"),
        (MULTI | {"enable_expert_parallel": True, "data_parallel_rpc_port": 8107}, "data_parallel_rpc_port 8107 and"),
        (SPLIT | {"prefill_port": 8195}, "prefill_port 8195-8202 and decode_port 8200-8207 overlap"),
        (SPLIT | {"decode_sidecar_port": 8207}, "decode_sidecar_port 8207-8214 and decode_port 8200-8207 overlap"),
        (SPLIT | {"nixl_side_channel_port": 7995}, "router_port 8000 and nixl_side_channel_port 7995-8002 overlap"),
        (SPLIT | {"backend_port": 8100}, "backend_port: no such setting"),
        ({"type": "single_node", "gpus_per_node": 1, "replicas": 2}, "replicas: .*1.*got 2"),
    ],
)
def test_an_impossible_deployment_is_refused_and_says_why(values, why):
    with pytest.raises(TopologyError, match=why):
        make_deployment(values)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ((), "needs 2 nodes .* and is given 0: nodes in the file or a --nodelist"),
        (("a", "b", "c"), "needs 2 nodes .* is given 3: a, b, c"),
        (("a", "a"), "'a' is listed twice"),
        (("a", "b/c"), "'b/c' is neither a host name nor an IP"),
        (("a", "b:80"), "'b:80' is neither"),
    ],
)
def test_nodes_that_do_not_fit_are_refused(nodes, why):
    with pytest.raises(TopologyError, match=why):
        place(make_deployment(MULTI | {"replicas": 2}), nodes)


@st.composite
def deployments(draw):
    count = st.integers(1, 3)
    tensor = draw(st.sampled_from([1, 2, 4]))
    common = {"tensor_parallel": tensor, "gpus_per_node": tensor * draw(count), "replicas": draw(count)}
    common["enable_expert_parallel"] = draw(st.booleans())
    if draw(st.booleans()):
        return common | {"type": "multi_node", "nodes_per_replica": draw(count)}
    names = ["prefill_replicas", "prefill_nodes_per_replica", "decode_replicas", "decode_nodes_per_replica"]
    return common | {"type": "disaggregated"} | {name: draw(count) for name in names}


@given(deployments())
def test_ranks_partition_the_gpus_and_no_two_share_a_url_or_a_place_in_a_group(values):
    plan = placed(values)
    nodes = {f"n{i}" for i in range(plan.deployment.replicas * plan.deployment.nodes_of_a_replica)}

    gpus = [(rank.node, gpu) for rank in plan.ranks for gpu in rank.gpus]
    assert sorted(gpus) == sorted((node, gpu) for node in nodes for gpu in range(values["gpus_per_node"]))
    assert len({rank.url for rank in plan.ranks}) == len(plan.ranks)
    assert {rank.port for rank in plan.ranks} <= set(range(8100, 8300))
    groups = Counter((rank.dp_address, rank.dp_size) for rank in plan.ranks if rank.dp_size > 1)
    assert all(count == size for (_, size), count in groups.items())
    assert len({(rank.dp_address, rank.dp_rank) for rank in plan.ranks if rank.dp_size > 1}) == sum(groups.values())
    names = [entry["name"] for entry in yaml.safe_load(llm_d(plan, lambda _: "10.0.0.1"))["endpoints"]]
    assert len(set(names)) == len(names) == len(plan.ranks)


@given(deployments(), st.data())
def test_the_replicas_together_are_the_deployment(values, data):
    whole = placed(values)
    parts = [placed(values, replica=number) for number in range(values["replicas"])]

    assert [rank for part in parts for rank in part.ranks] == list(whole.ranks)
    if whole.deployment.router_per_replica:
        assert [node for part in parts for node in part.routers] == list(whole.routers)
    chosen = data.draw(st.sampled_from(parts))
    assert chosen.ranks[0].node == chosen.routers[0]


def test_expert_parallelism_makes_one_group_of_a_replica_and_none_of_a_single_engine():
    wide = placed(MULTI | {"nodes_per_replica": 2, "replicas": 2, "enable_expert_parallel": True})
    alone = placed(MULTI | {"tensor_parallel": 8, "replicas": 2, "enable_expert_parallel": True})

    assert [(r.dp_rank, r.dp_size, r.dp_address) for r in wide.ranks][15:17] == [(15, 16, "n0"), (0, 16, "n2")]
    assert {rank.dp_size for rank in alone.ranks} == {1}


def test_a_disaggregated_deployment_has_a_router_a_replica_and_admin_urls_by_replica():
    values = SPLIT | {"tensor_parallel": 8, "replicas": 2, "router_admin_port": 9000}
    plan = placed(values)

    assert plan.router_urls == ["http://n0:8000/v1", "http://n2:8000/v1"]
    assert [rank.admin_url for rank in plan.ranks] == [f"http://n{i}:8{1 + i % 2}00" for i in range(4)]
    with pytest.raises(TopologyError, match="a router for each of its 2 replicas; --replica chooses one"):
        plan.router_settings()
    assert placed(values, replica=1).router_settings() == {
        "port": 8000,
        "host": "0.0.0.0",
        "admin_port": 9000,
        "prefill_backends": ("http://n2:8100/v1",),
        "backends": ("http://n3:8200/v1",),
    }
    with pytest.raises(TopologyError, match="has no replica 2; 0 to 1"):
        placed(values, replica=2)


def test_llm_d_gets_prefill_first_ipv4_literals_quoted_ports_and_the_sidecar():
    text = llm_d(placed(SPLIT | {"tensor_parallel": 8, "replicas": 2}), {f"n{i}": f"10.0.0.{i}" for i in range(4)}.get)
    entries = yaml.safe_load(text)["endpoints"]

    assert [(entry["name"], entry["address"], entry["port"]) for entry in entries] == [
        ("prefill-0-rank-0", "10.0.0.0", "8100"),
        ("prefill-1-rank-0", "10.0.0.2", "8100"),
        ("decode-0-rank-0", "10.0.0.1", "8300"),
        ("decode-1-rank-0", "10.0.0.3", "8300"),
    ]
    assert entries[0]["labels"] == {"llm-d.ai/pool": "gymproof", "llm-d.ai/role": "prefill"}
    assert re.search(r"port: ['\"]8100['\"]", text)


def test_a_node_without_an_ipv4_address_is_named_only_where_one_is_needed():
    plan = placed(MULTI | {"tensor_parallel": 8}, ["::1"])

    assert "http://[::1]:8100/v1" in render(plan, "urls")
    with pytest.raises(TopologyError, match="'::1' has no IPv4 address"):
        render(plan, "llm-d")


def test_the_shell_reads_the_variables():
    plan = placed(MULTI | {"tensor_parallel": 4, "replicas": 2})
    script = render(plan, "env") + 'echo "$ROUTER_URLS"; set -- $ADMIN_URLS; echo "$# $4"'
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    assert shown.stdout == "http://n0:8000/v1\n4 http://n1:8101\n"


def test_prometheus_gets_every_engine_and_router_with_labels():
    targets = orjson.loads(render(placed(MULTI | {"tensor_parallel": 8, "router_admin_port": 8001}), "prometheus"))

    assert targets == [
        {"targets": ["n0:8100"], "labels": {"deployment": "gymproof", "role": "backend", "replica": "0"}},
        {"targets": ["n0:8001"], "labels": {"deployment": "gymproof", "role": "router"}},
    ]


@pytest.mark.parametrize(("name", "suffix"), [("urls", "txt"), ("llm-d", "yaml")])
def test_a_backends_file_may_be_what_topology_writes(tmp_path, name, suffix):
    file, out = tmp_path / "t.toml", tmp_path / f"fleet.{suffix}"
    file.write_text('type = "single_node"\ngpus_per_node = 2\n')
    result = CliRunner().invoke(app, ["topology", str(file), "--format", name, "-o", str(out)])

    assert result.exit_code == 0, result.output
    assert [endpoint.key for endpoint in read_backends(out)] == ["http://127.0.0.1:8100", "http://127.0.0.1:8101"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([out.name, file.name])


def test_an_output_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    file, out = tmp_path / "t.toml", tmp_path / "folder"
    file.write_text('type = "single_node"\ngpus_per_node = 2\n')
    out.mkdir()
    result = CliRunner().invoke(app, ["topology", str(file), "-o", str(out)])

    assert result.exit_code == 2, result.output
    assert sorted(tmp_path.iterdir()) == [out, file]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("endpoints:\n", "names no backend"),
        ("- a\n", "is no llm-d endpoints file"),
        ("endpoints: [{address: 10.0.0.1, port: '99999'}]\n", "the port is not a number"),
        ("endpoints: [{address: 10.0.0.1, port: '1', labels: {llm-d.ai/role: prefill}}]\n", "has prefill endpoints"),
    ],
)
def test_an_endpoints_file_that_cannot_be_served_is_refused(tmp_path, text, why):
    path = tmp_path / "endpoints.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_backends(path)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["topology", "{file}"], "t.toml: needs 2 nodes"),
        (["topology", "{file}", "--nodelist", ""], "node list is empty"),
        (["topology", "{file}", "--nodelist", "a,b", "--format", "xml"], "unknown format 'xml'; known: urls, env"),
        (["topology", "/nowhere.toml"], "/nowhere.toml: .*No such file"),
        (["serve", "--topology", "{file}"], "t.toml: needs 2 nodes"),
        (["serve", "--topology", "{file}", "--nodelist", "a,b", "--backend", "http://c"], "backends names backends"),
        (["serve", "--nodelist", "a"], "need --topology FILE"),
    ],
)
def test_bad_input_is_one_line_with_code_2(tmp_path, arguments, why):
    file = tmp_path / "t.toml"
    file.write_text('type = "multi_node"\ngpus_per_node = 1\nreplicas = 2\n')
    result = CliRunner().invoke(app, [argument.format(file=file) for argument in arguments])

    assert result.exit_code == 2
    assert re.search(why, result.output), result.output
    assert result.output.count("\n") == 1
