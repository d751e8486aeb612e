"""Real vLLM servers as a fleet: what they are told, and how they are started.

On a CPU they are forked from one process that has imported vLLM; where there are GPUs, after whose first use nothing
may be forked, each is started as its users do.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from ..fleet import LocalFleet
from ..guard import Guard
from ..processes import Group, ProcessGroup
from .inside import PROGRAMS
from .install import Vllm
from .model import tiny_model
from .preload import Preload

SERVED_MODEL_NAME = "tiny"  # whatever the model: it is what clients ask for
_PRELOADED_WITHIN_S = 180.0
_READY_WITHIN_S = {"cpu": 120.0, "gpu": 600.0}
_ENV = {
    "VLLM_SERVER_DEV_MODE": "1",  # /pause, /sleep and their like
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_CPU_ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB, and the smallest there is; the blocks below make it small
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",  # the first log probabilities would be compiled for, 15 s long
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # lets a CPU engine work without a worker process of its own
}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_SMALL_CACHE = ("--num-gpu-blocks-override", "512")
_CPU_ARGS = ("--dtype", "float32", "--distributed-executor-backend", "uni", *_SMALL_CACHE)
_TINY_SHARE = 0.1  # of a GPU's memory
_WHOLE_SHARE = 0.9


class VllmFleet(LocalFleet):
    """Real vLLM servers on this machine's CPUs or GPUs.

    `model` is a path or a name as vLLM takes it, None for the tiny model; `args` come last on each server's command
    line. Raises ModelError, PreloadError and ShardStartError when it cannot start.
    """

    pace: ClassVar[float] = 2.0

    def __init__(
        self,
        shards: int = 3,
        *,
        folder: Path,
        vllm: Vllm,
        model: str | None = None,
        args: Sequence[str] = (),
        max_model_len: int = 4096,
    ) -> None:
        super().__init__(shards, folder=folder, ready_within_s=_READY_WITHIN_S["gpu" if vllm.gpus else "cpu"])
        self._vllm = vllm
        self._model = model
        self._args = args
        self._max_model_len = max_model_len
        self._preload: Preload | None = None

    @property
    def versions(self) -> dict[str, str]:
        """The version of vLLM."""
        return {"vllm": self._vllm.version}

    async def prepare(self, stack: ExitStack, guard: Guard) -> None:
        """Have a model, and on a CPU vLLM imported."""
        sockets = guard.folder("gymproof-vllm-")  # which vLLM leaves behind
        self._env = environment(self._vllm, sockets, offline=self._model is None)
        self._path = self._model or str(await tiny_model(self._vllm.python, guard))
        if not self._vllm.gpus:
            preload = Preload(self._vllm.python, self._env, self._folder / "preload.out", guard)
            self._preload = stack.enter_context(preload)
            await preload.ready(_PRELOADED_WITHIN_S)

    async def launch(self, index: int, port: int, guard: Guard, log: Path, output: Path) -> Group:
        """Start one server."""
        argv = [*self._arguments(), "--port", str(port), *self._args]
        env = {"GYMPROOF_SHARD_LOG": str(log)}
        if self._preload is not None:
            return self._preload.start(argv, env, output)
        env |= {**self._env, "CUDA_VISIBLE_DEVICES": self._vllm.gpus[index % len(self._vllm.gpus)]}
        program = [str(self._vllm.python), "-m", "vllm.entrypoints.openai.api_server"]
        return ProcessGroup([*program, *argv], guard=guard, output=output, env=env)

    def _arguments(self) -> list[str]:
        common = ["--model", self._path, "--served-model-name", SERVED_MODEL_NAME, "--host", "127.0.0.1"]
        common += ["--max-model-len", str(self._max_model_len), "--enforce-eager"]
        common += ["--middleware", "gymproof_middleware.RecordPosts"]
        return [*common, *(self._gpu_arguments() if self._vllm.gpus else _CPU_ARGS)]

    def _gpu_arguments(self) -> list[str]:
        neighbours = -(-self._count // len(self._vllm.gpus))
        share = _WHOLE_SHARE / neighbours
        small: Sequence[str] = ()
        if self._model is None:
            share, small = min(share, _TINY_SHARE), _SMALL_CACHE
        return ["--enable-sleep-mode", "--gpu-memory-utilization", f"{share:.3f}", *small]


def environment(vllm: Vllm, sockets: str, *, offline: bool) -> Mapping[str, str]:
    """The environment of a server. `inside` is on its path, and it downloads nothing where the model is our own."""
    path = os.pathsep.join([str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])])
    kind = {} if vllm.gpus else _CPU_ENV
    return {
        **os.environ,
        **_ENV,
        **kind,
        **(_OFFLINE if offline else {}),
        "VLLM_RPC_BASE_PATH": sockets,
        "PYTHONPATH": path,
    }
