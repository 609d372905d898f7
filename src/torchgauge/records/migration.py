"""Reads records of older schemas: fields that were renamed since have their old names there."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from torchgauge.records.advice import LeftOut
from torchgauge.records.comparison import Comparison
from torchgauge.records.doctor import Check
from torchgauge.records.memory.training_memory import OptimizerMemory
from torchgauge.records.record import Record
from torchgauge.records.snapshot import DeviceMemory, Mark, Oom, Peak
from torchgauge.records.sweep import Fit, Sweep
from torchgauge.records.timeline.loop import Captured
from torchgauge.records.timeline.tree_row import TreeRow
from torchgauge.records.trace.breakdown import Breakdown
from torchgauge.records.trace.trace import Queue, SlowCall
from torchgauge.records.trace.trace_diff import Changes
from torchgauge.records.trend import TrendChange
from torchgauge.records.verdict import Limit, Verdict
from torchgauge.records.work.cost import CostRow
from torchgauge.records.work.count import Count

K = TypeVar("K", bound=Record)

# By type, the names that fields had in older schemas, and those that they have today. Whoever
# renames a field adds its old name here and raises the number of each schema that holds the type.
RENAMED_FIELDS: dict[type[msgspec.Struct], dict[str, str]] = {
    Breakdown: {"pieces": "activities"},
    Captured: {"asked": "requested"},
    Changes: {"rest": "remainder"},
    Check: {"seen": "observed"},
    Comparison: {"elsewhere": "remainder"},
    CostRow: {"known": "has_formula"},
    Count: {"elsewhere": "other_devices"},
    DeviceMemory: {"kept": "possible_leaks"},
    Fit: {"holds": "is_linear"},
    LeftOut: {"alone": "tested_alone"},
    Limit: {"least": "is_minimum", "of": "rate_unit"},
    Mark: {"at": "time"},
    Oom: {"at": "time", "asked": "requested"},
    OptimizerMemory: {"least": "lower_bound"},
    Peak: {"at": "time"},
    Queue: {"most": "max_length"},
    SlowCall: {"at": "time"},
    Sweep: {"where": "constraints"},
    TreeRow: {"unsaid": "calls_without_bytes"},
    TrendChange: {"at": "likeliest"},
    Verdict: {"guilty": "regressed_layers"},
}


def migrated(data: bytes, kind: type[K]) -> K:
    """Return the record of an older schema of its kind as one of the current schema.

    Raises what msgspec raises of a file that does not fit.
    """
    content = _renamed(msgspec.json.decode(data), inspect.type_info(kind))
    return msgspec.convert(content, kind, str_keys=True)


def _renamed(value: Any, kind: inspect.Type) -> Any:
    """Return decoded JSON with today's names; what is not of its type is left for the decoder."""
    match kind:
        case inspect.StructType() if isinstance(value, dict):
            names = RENAMED_FIELDS.get(kind.cls, {})
            types = {field.encode_name: field for field in kind.fields}
            fields = {names.get(name, name): part for name, part in value.items()}
            if "schema" in types:
                fields["schema"] = types["schema"].default
            return {
                name: _renamed(part, types[name].type) if name in types else part
                for name, part in fields.items()
            }
        case inspect.VarTupleType() if isinstance(value, list):
            return [_renamed(item, kind.item_type) for item in value]
        case inspect.DictType() if isinstance(value, dict):
            return {key: _renamed(part, kind.value_type) for key, part in value.items()}
        case inspect.UnionType() if value is not None:
            # Unions of records hold one type besides None.
            for member in kind.types:
                value = _renamed(value, member)
    return value
