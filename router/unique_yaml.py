"""YAML in which a key may be there once. PyYAML itself takes the last one and says nothing."""

from typing import Any

from yaml import MappingNode, SafeLoader, ScalarNode
from yaml.constructor import ConstructorError


class _UniqueKeys(SafeLoader):
    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, ScalarNode)):
            if key.value in seen:
                raise ConstructorError(None, None, f"the key {key.value!r} is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """The one document in `text`, of plain values. Raises yaml.YAMLError, which names the line."""
    loader = _UniqueKeys(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
