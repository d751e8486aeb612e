"""prime-rl's TOML: its router, its ports, and the client that its agents call with."""

import pytest

from gymproof.validators import CannotTellError, UnsafeForGymError, Verdict, judge_config, validate_config
from gymproof.validators.findings import worst

RUN = """
max_steps = 100

[inference]
backend_port = 8100
[inference.server]
port = 8000
[inference.router]
type = "vllm-router"
policy = "consistent_hash"
[inference.vllm]
model = "Qwen/Qwen3-0.6B"
tensor_parallel_size = 2
max_num_seqs = 256

[orchestrator]
batch_size = 64
[orchestrator.model.client]
base_url = "http://localhost:8000/v1"
headers = { X-Team = "rl" }
[orchestrator.model.client.extra_headers_from_state]
X-Session-ID = "trajectory_id"
"""


@pytest.fixture
def judged(tmp_path):
    """The findings on RUN with some of its text exchanged; every change has to find its place."""

    def judge(*changes: tuple[str, str]):
        text = RUN
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        path = tmp_path / "rl.toml"
        path.write_text(text)
        return judge_config(path)

    return judge


def test_a_usual_run_is_safe(judged):
    findings = judged()

    assert worst(findings) is Verdict.SAFE
    assert [finding.verdict for finding in findings] == [Verdict.SAFE]


@pytest.mark.parametrize(
    ("old", "new", "key", "words"),
    [
        ("policy =", "polcy =", "inference.router.polcy", "Right: inference.router.policy"),
        ("backend_port", "backend_prot", "inference.backend_prot", "Right: inference.backend_port"),
        ("base_url", "base_ulr", "orchestrator.model.client.base_ulr", "Right: orchestrator.model.client.base_url"),
        ('"vllm-router"', '"envoy"', "inference.router", "no router that prime-rl starts"),
        ('"vllm-router"', '"llm-d"', "inference.router", "several nodes"),
        ("backend_port = 8100", "backend_port = 7998", "inference.backend_port", "is the router's"),
        ("port = 8000", "port = 50000", "inference.server.port", "metrics port"),
        ("size = 2", "size = 3", "inference.vllm.tensor_parallel_size", "GPUs stay idle"),
        ("size = 2", "size = 16", "inference.vllm.tensor_parallel_size", "no engine fits"),
        ("localhost:8000", "localhost:8100", "orchestrator.model.client.base_url", "past the router"),
        ("http://local", "local", "orchestrator.model.client.base_url", "no http:// or https:// URL"),
        ("X-Team", "x-session-id", "orchestrator.model.client.headers.x-session-id", "one value for every rollout"),
        (
            "headers = {",
            'admin_base_url = ["http://localhost:8000/v1/"]\nheaders = {',
            "orchestrator.model.client.admin_base_url",
            "one engine of all",
        ),
    ],
)
def test_each_mistake_is_named_with_what_would_be_right(judged, old, new, key, words):
    unsafe = {finding.key: str(finding) for finding in judged((old, new)) if finding.verdict is Verdict.UNSAFE}

    assert list(unsafe) == [key]
    assert words in unsafe[key]


def test_engines_of_many_nodes_need_a_router(judged):
    deployment = '[inference.deployment]\ntype = "multi_node"\n\n[inference.vllm]'
    findings = judged(
        ('[inference.router]\ntype = "vllm-router"\npolicy = "consistent_hash"\n', ""),
        ("backend_port = 8100", 'router = "None"'),
        ("[inference.vllm]", deployment),
    )

    assert ["an engine for each rank" in finding.problem for finding in findings] == [True]


def test_an_external_server_needs_the_engines_for_its_weights(tmp_path):
    path = tmp_path / "orch.toml"
    path.write_text('[orchestrator.model.client]\nbase_url = "http://router:9000/v1"\n')

    assert ["one engine only" in finding.problem for finding in judge_config(path) if finding.key.endswith("url")] == [
        True
    ]


def test_an_unsafe_run_is_refused_and_names_its_file(tmp_path):
    path = tmp_path / "rl.toml"
    path.write_text(RUN.replace("policy =", "polcy ="))
    with pytest.raises(UnsafeForGymError, match=r"rl\.toml: inference\.router\.polcy"):
        validate_config(path)


def test_a_file_of_another_kind_cannot_be_judged(tmp_path):
    path = tmp_path / "train.toml"
    path.write_text("[optim]\nlr = 1e-6\n")
    with pytest.raises(CannotTellError, match="prime-rl"):
        judge_config(path)
