"""A scenario as the text of a scenario file: what `scenario.load` reads back as the same scenario."""

from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit

from .scenario import FaultPlan, Scenario


def dump(scenario: Scenario, *, remarks: Sequence[str] = (), whole: bool = True) -> str:
    """The scenario, after the lines of `remarks` as comments.

    `whole` writes the defaults out, for a record, since a later version may have others; else what they leave to say.
    """
    document = tomlkit.document()
    for remark in remarks:
        document.add(tomlkit.comment(remark))
    tables = scenario.model_dump(mode="json", exclude={"fault"}, exclude_none=True, exclude_defaults=not whole)
    for name, value in tables.items():
        document.add(name, value)
    faults = tomlkit.aot()
    for plan in scenario.fault:
        faults.append(_table(_fault(plan, whole=whole)))
    document.add("fault", faults)
    return tomlkit.dumps(document)


def tables(scenario: Scenario) -> dict[str, Any]:
    """The scenario as the tables of its file, which `Scenario.model_validate` takes."""
    known = scenario.model_dump(mode="json", exclude={"fault"}, exclude_none=True)
    return {**known, "fault": [_fault(plan, whole=False) for plan in scenario.fault]}


def _fault(plan: FaultPlan, *, whole: bool) -> dict[str, Any]:
    timing = plan.model_dump(mode="json", exclude={"kind", "fault"}, exclude_none=True)
    parameters = plan.fault.model_dump(mode="json", exclude_none=True, exclude_defaults=not whole)
    return {"kind": plan.kind, **timing, **parameters}


def _table(fields: Mapping[str, Any]) -> Any:
    """A table whose own tables stand on one line each."""
    table = tomlkit.table()
    for name, value in fields.items():
        if isinstance(value, dict):
            inline = tomlkit.inline_table()
            inline.update(value)
            table.add(name, inline)
        else:
            table.add(name, value)
    return table
