"""The kinds of backends, by the name that `--fleet` knows them by."""

from collections.abc import Callable
from pathlib import Path

from .choices import Setup
from .fleet import LocalFleet, SimFleet
from .ray_fleet import RayFleet, RayUnavailableError, check_ray
from .scenario import FleetTable, ScenarioError
from .vllm.fleet import VllmFleet
from .vllm.install import VllmUnavailableError, find_vllm

FleetMaker = Callable[[FleetTable, Path], LocalFleet]


def _simulated(setup: Setup, kind: type[SimFleet] = SimFleet) -> FleetMaker:
    def make(table: FleetTable, folder: Path) -> LocalFleet:
        return kind(
            table.shards,
            folder=folder,
            seed=setup.seed,
            token_ms=table.token_ms,
            sigterm=table.sigterm,
            prefill=table.prefill,
            kv_connector=table.kv_connector,
            max_model_len=table.max_model_len,
        )

    return make


def _on_ray(setup: Setup) -> FleetMaker:
    try:
        check_ray()
    except RayUnavailableError as error:
        raise ScenarioError(f"fleet 'ray': {error}") from error
    return _simulated(setup, RayFleet)


def _vllm(setup: Setup) -> FleetMaker:
    try:
        vllm = find_vllm(setup.vllm_python)
    except VllmUnavailableError as error:
        raise ScenarioError(f"fleet 'vllm': {error}") from error

    def make(table: FleetTable, folder: Path) -> LocalFleet:
        return VllmFleet(
            table.shards,
            folder=folder,
            vllm=vllm,
            model=setup.model,
            args=setup.vllm_args,
            max_model_len=table.max_model_len,
        )

    return make


FLEETS: dict[str, Callable[[Setup], FleetMaker]] = {"sim": _simulated, "ray": _on_ray, "vllm": _vllm}
