"""Reads a NeMo-RL YAML the way NeMo-RL does: `defaults:` chains, `_override_`, Hydra overrides.

What is remembered beside the merged configuration is which layer set each key, so that a
finding can name the file to edit. What a value means is not decided here.
"""

import difflib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from .findings import cannot_tell

# What NeMo-RL registers before it loads a configuration.
_RESOLVERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
}
_OVERRIDE = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<key>[A-Za-z_][\w.\[\]-]*)(?:=(?P<value>.*))?", re.DOTALL)
_INDEX = re.compile(r"\[(\d+)\]")
_TIGHT_COLON = re.compile(r"([{,]\s*[\w.-]+):(?=\S)")


@dataclass
class Layered:
    """A merged configuration and the layers it came from, first to last."""

    source: str
    merged: DictConfig = field(default_factory=lambda: OmegaConf.create({}))
    layers: list[tuple[str, DictConfig]] = field(default_factory=list)

    def has(self, key: str) -> bool:
        """Whether `key` is set at all, null included."""
        parent, _, leaf = key.rpartition(".")
        return leaf in self.names(parent)

    def names(self, block: str) -> list[str]:
        """The keys of a block (its indices, for a list), nothing resolved; "" is the whole configuration."""
        node = OmegaConf.select(self.merged, block, throw_on_resolution_failure=False) if block else self.merged
        if isinstance(node, ListConfig):
            return [str(index) for index in range(len(node))]
        return [str(name) for name in node] if isinstance(node, DictConfig) else []

    def get(self, key: str, default: Any = None) -> Any:
        """The value at a dotted key, plain and with interpolations resolved.

        Raises CannotTellError for one that is mandatory and missing (`???`) or does not resolve.
        """
        if not self.has(key):
            return default
        try:
            with _resolvers():
                value = OmegaConf.select(self.merged, key, throw_on_missing=True, throw_on_resolution_failure=True)
                return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        except OmegaConfBaseException as error:
            raise cannot_tell(self.where(key), key, "???", f"does not resolve: {_first_line(error)}") from error

    def where(self, key: str) -> str:
        """The last file or override that set `key`, or the file that leaves it to its default."""
        for source, layer in reversed(self.layers):
            if OmegaConf.select(layer, key, throw_on_missing=False, throw_on_resolution_failure=False) is not None:
                return source
        return self.source


def load_layers(
    path_or_mapping: str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    source: str = "<mapping>",
) -> Layered:
    """Load a file with its defaults, or a mapping that came from `source`, and apply Hydra-style `overrides`.

    Raises CannotTellError naming the file or override that cannot be read.
    """
    if isinstance(path_or_mapping, Mapping):
        layered = Layered(source)
        _merge(layered, layered.source, _created(source, path_or_mapping))
    else:
        path = Path(path_or_mapping)
        layered = Layered(str(path))
        for file, layer in _chain(path, ()):
            _merge(layered, file, layer)
    for override in overrides:
        _apply(layered, override)
    return layered


def _chain(path: Path, children: tuple[Path, ...]) -> Iterator[tuple[str, DictConfig]]:
    """The file's parents, depth first, then the file."""
    resolved = path.resolve()
    if resolved in children:
        raise cannot_tell(str(children[-1]), "defaults", str(path), "the defaults go round in a circle")
    layer = _read(path, children)
    defaults = layer.pop("defaults", None)
    names = [defaults] if isinstance(defaults, str) else list(defaults or ())
    for name in names:
        yield from _chain(path.parent / str(name), (*children, resolved))
    yield str(path), layer


def _created(source: str, mapping: Mapping[str, Any]) -> DictConfig:
    try:
        return OmegaConf.create(dict(mapping))
    except OmegaConfBaseException as error:
        raise cannot_tell(source, "mapping", "", f"cannot be read: {_first_line(error)}") from error


def _read(path: Path, children: tuple[Path, ...]) -> DictConfig:
    by = f" (named under `defaults` of {children[-1]})" if children else ""
    try:
        loaded = OmegaConf.load(path)
    except (OSError, YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise cannot_tell(str(path), "file", path.name, f"cannot be read{by}: {_first_line(error)}") from error
    if isinstance(loaded, ListConfig):
        raise cannot_tell(str(path), "file", path.name, f"is a list{by}", "a YAML mapping.")
    return loaded


def _merge(layered: Layered, source: str, layer: DictConfig) -> None:
    """Merge on top; a block marked `_override_: true` replaces what was there, as NeMo-RL has it."""
    for key in list(layer):
        if OmegaConf.is_missing(layer, key):
            continue
        block = layer[key] if not OmegaConf.is_interpolation(layer, key) else None
        if isinstance(block, DictConfig) and block.pop("_override_", False):
            layered.merged.pop(key, None)
    try:
        layered.merged = _dict(OmegaConf.merge(layered.merged, layer))
    except OmegaConfBaseException as error:
        raise cannot_tell(source, "file", source, f"does not merge: {_first_line(error)}") from error
    layered.layers.append((source, layer))


def _apply(layered: Layered, override: str) -> None:
    """One `key=value`, `+key=value`, `++key=value` or `~key`, refused where Hydra would refuse it."""
    match = _OVERRIDE.fullmatch(override)
    if match is None or (match["value"] is None and match["sign"] != "~"):
        raise cannot_tell("override", "override", override, "is not one", "key=value, ++key=value or ~key.")
    sign, text = match["sign"] or "", match["value"]
    key = _INDEX.sub(r".\1", match["key"])
    source = f"override {override}"
    value = _value(source, key, text) if text is not None else None
    exists = layered.has(key)
    if sign in ("", "~") and not exists:
        raise cannot_tell(source, key, text, "no such key in the configuration" + _near(layered, key), f"++{key}=...")
    if sign == "+" and exists and layered.get(key) is not None and not isinstance(value, (dict, list)):
        raise cannot_tell(source, key, text, "is there already, so + refuses it", f"++{key}={text}")
    if sign == "~":
        if text is not None and layered.get(key) != value:
            raise cannot_tell(source, key, text, f"is {layered.get(key)!r}, so ~ refuses it", f"~{key}")
        _delete(layered, key)
    else:
        _update(layered, source, key, value)


def _update(layered: Layered, source: str, key: str, value: Any) -> None:
    try:
        OmegaConf.update(layered.merged, key, value, merge=True, force_add=True)
    except (OmegaConfBaseException, ValueError, TypeError, AttributeError, AssertionError) as error:
        raise cannot_tell(source, key, value, f"does not apply: {_first_line(error)}") from error
    layered.layers.append((source, _dict(OmegaConf.from_dotlist([f"{key}=set"]))))


def _value(source: str, key: str, text: str) -> Any:
    """Parse a value as OmegaConf does; Hydra also lets `{a:1}` go without a space."""
    spaced = _TIGHT_COLON.sub(r"\1: ", text) if text.startswith(("{", "[")) else text
    try:
        parsed = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={spaced}"]), resolve=False)
    except (YAMLError, OmegaConfBaseException) as error:
        raise cannot_tell(source, key, text, f"cannot be read: {_first_line(error)}") from error
    return parsed["value"] if isinstance(parsed, dict) else None


def _delete(layered: Layered, key: str) -> None:
    parent, _, leaf = key.rpartition(".")
    node = OmegaConf.select(layered.merged, parent) if parent else layered.merged
    del node[int(leaf) if isinstance(node, ListConfig) else leaf]


def _near(layered: Layered, key: str) -> str:
    parent, _, leaf = key.rpartition(".")
    near = difflib.get_close_matches(leaf, layered.names(parent), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _dict(config: Any) -> DictConfig:
    if not isinstance(config, DictConfig):
        raise TypeError(f"expected a mapping, got {type(config).__name__}")
    return config


def _first_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return next(iter(str(error).splitlines()), type(error).__name__)


@contextmanager
def _resolvers() -> Iterator[None]:
    """NeMo-RL's resolvers for as long as they are needed; the caller's own of that name stay."""
    ours = [name for name in _RESOLVERS if not OmegaConf.has_resolver(name)]
    with warnings.catch_warnings():
        # OmegaConf 2.4 renames this to a name that means something else in 2.3.
        warnings.simplefilter("ignore")
        for name in ours:
            OmegaConf.register_new_resolver(name, _RESOLVERS[name])
    try:
        yield
    finally:
        for name in ours:
            OmegaConf.clear_resolver(name)
