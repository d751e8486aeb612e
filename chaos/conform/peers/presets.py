"""The routers that are known by name: how each is started, and how it was set up for NeMo-Gym's client.

All get the same: retries on, one health check a second where there is one, a failed shard back within seconds, the
deadline as the time limit of a request, and nothing but loopback. A router is set up by its documented options alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ...choices import GYM_ROUTER

_SESSION = "X-Session-ID"


class PresetError(ValueError):
    """No such preset; the message has the known ones."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A router that can be judged by its name.

    `command` is a `--router-cmd` template, and `program` what has to be on PATH for it. `version` is what to ask the
    program for its version, or the distribution that it comes from; `module` is what else this Python must have.
    """

    name: str
    title: str
    program: str
    command: str
    version: tuple[str, ...] | str
    install: str
    settings: str  # one line: what was set, and why
    start_within_s: float = 20.0
    session_header: str = ""  # by which it keeps a session on one shard; "": it keeps none
    affinity_command: str = ""  # where it keeps sessions only at a price: the command that does
    module: str = ""


# These options are the same in the three routers that grew out of one. Their metrics take a port whether anybody
# wants them or not: on another loopback address that number is as free as the router's own.
_RUST = (
    "--host 127.0.0.1 --port {port} --prometheus-host 127.0.0.2 "
    "--request-timeout-secs {deadline_s:.0f} --retry-max-retries 5 --retry-initial-backoff-ms 10 "
    "--cb-failure-threshold 1 --cb-success-threshold 1 --cb-timeout-duration-secs 2 "
    "--health-check-interval-secs 1 --health-check-timeout-secs 2 --health-failure-threshold 2 "
    "--health-success-threshold 1 --worker-startup-check-interval 1 --log-level error"
)
_WORKERS = "--prometheus-port {port} --worker-urls {backends}"
_RUST_SETTINGS = (
    "five attempts, as by default, without much delay; the breaker opens at the first failure, so that a retry meets "
    "another shard, and lets one try after 2 s; a health check a second; the deadline, in whole seconds, is for each"
)
_LAUNCHED = "--port {port} --folder {folder} --deadline-s {deadline_s} --max-attempts {max_attempts} {backends}"
_CONFIGURED = "python -m gymproof.chaos.conform.peers --program"

_ALL = (
    Preset(
        name="gymproof",
        title="gymproof",
        program="gym-router",
        command=GYM_ROUTER,
        version="gymproof",
        install="pip install gymproof",
        settings="probe every 0.2 s, connect within 0.5 s, a restarted shard serves again when it generates",
        session_header=_SESSION,
    ),
    Preset(
        name="vllm-router",
        title="vLLM Router",
        program="vllm-router",
        command=f"vllm-router {_RUST} {_WORKERS} --policy round_robin",
        version="vllm-router",
        install="pip install vllm-router==0.1.17",
        settings=f"{_RUST_SETTINGS}; round robin, since its hash sends all requests without a session to one shard",
        session_header=_SESSION,
        affinity_command=f"vllm-router {_RUST} {_WORKERS} --policy consistent_hash",
    ),
    Preset(
        name="sglang-router",
        title="SGLang Router",
        program="sglang-router",
        command=f"sglang-router launch {_RUST} {_WORKERS} --policy manual",
        version="sglang-router",
        install="pip install sglang-router==0.3.2",
        settings=_RUST_SETTINGS,
        session_header="X-SMG-Routing-Key",
    ),
    Preset(
        name="smg",
        title="Shepherd Model Gateway",
        program="smg",
        # It refuses one port number for both, whatever the addresses.
        command=f"sh -c 'exec smg launch {_RUST} --prometheus-port $(({{port}} + 1)) --backend vllm "
        "--disable-tokenizer-autoload --policy consistent_hashing --routing-key-headers x-session-id "
        '--worker-urls "$@"\' smg {backends}',
        version="smg",
        install="pip install smg==1.13.0",
        settings=f"{_RUST_SETTINGS}; no tokenizer is looked for",
        session_header=_SESSION,
    ),
    Preset(
        name="nginx",
        title="nginx",
        program="nginx",
        command=f"{_CONFIGURED} nginx {_LAUNCHED}",
        version=("-v",),
        install="apt-get install nginx",
        settings="a POST is tried again on another shard, all attempts within the deadline; a failed shard rests 2 s; "
        "429, 502, 503, 504 and 520 become 500, or 409 where no shard is left; buffers both sides; consistent hash of "
        "the session",
        session_header=_SESSION,
    ),
    Preset(
        name="haproxy",
        title="HAProxy",
        program="haproxy",
        command=f"{_CONFIGURED} haproxy {_LAUNCHED}",
        version=("-v",),
        install="apt-get install haproxy",
        settings="what fails before the deadline is tried again on another shard; a health check a second; 3 errors "
        "in a row take a shard out until the next one; 429, 502, 503, 504 and 520 become 500, or 409 where no shard is "
        "left; a client that leaves ends its request; one request a connection, since the death of a shard's is passed "
        "on to a client's second; consistent hash of the session",
        session_header=_SESSION,
    ),
    Preset(
        name="litellm",
        title="LiteLLM Proxy",
        program="litellm",
        command=f"{_CONFIGURED} litellm {_LAUNCHED}",
        version="litellm",
        install="pip install 'litellm[proxy]==1.100.5'",
        settings="a deployment for each shard, under any model name; a failed request goes to another one, once; no "
        "cooldown, since with all shards in it the answer is 429; the deadline is each attempt's; no database",
        start_within_s=90.0,
        session_header="X-LiteLLM-Session-ID",
    ),
    Preset(
        name="nemo-rl",
        title="NeMo-RL generation router",
        program="python",
        command=f"python -m gymproof.chaos.conform.peers.nemo_rl {_LAUNCHED}",
        version=("-c", "import nemo_rl; print(nemo_rl.__version__)"),
        install="git clone https://github.com/NVIDIA-NeMo/RL && pip install ./RL",
        settings="health-managed by its own ledger: a GET /health each second, two failures in a row take a shard out, "
        "and one that answers again counts as refitted (the trainer of this version brings none back)",
        start_within_s=60.0,
        module="nemo_rl",
    ),
)
PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _ALL}


def find(name: str) -> Preset:
    """The preset of that name. Raises PresetError."""
    if name not in PRESETS:
        raise PresetError(f"router {name!r}: no such preset; known: {', '.join(PRESETS)}")
    return PRESETS[name]
