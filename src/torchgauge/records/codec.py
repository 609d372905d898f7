"""Records to JSON and back, by schema.

Wrong types and implausible numbers are refused while decoding, and a tree checks itself. What is
checked here are relations between fields: indices into a list, pairs, lists that must not be empty.
"""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from torchgauge.errors import RecordError
from torchgauge.files import write_atomically
from torchgauge.reading import RECORD, read_bytes
from torchgauge.records.advice import Advice
from torchgauge.records.comparison import Comparison
from torchgauge.records.doctor import Diagnosis
from torchgauge.records.environment import Environment
from torchgauge.records.generation.call import GenerationCall
from torchgauge.records.generation.cell import GenerationCell
from torchgauge.records.generation.generation import Generation
from torchgauge.records.latency.latency import Latency, TrainingTime
from torchgauge.records.parallel.parallel import Parallel
from torchgauge.records.profile import SCHEMA, Profile
from torchgauge.records.record import LARGEST_INTEGER, Record
from torchgauge.records.serving import serving as agreement
from torchgauge.records.serving.capacity_plan import CapacityPlan
from torchgauge.records.serving.serving import Serving
from torchgauge.records.snapshot import DeviceMemory, Growth, Snapshot
from torchgauge.records.sweep import Cell, Scaling, Sweep
from torchgauge.records.timeline.loop import Loop
from torchgauge.records.timeline.training_run import TrainingRun
from torchgauge.records.timeline.tree import Timeline, Tree, disagreements
from torchgauge.records.trace.ranks import Ranks
from torchgauge.records.trace.trace import RankTrace, Trace
from torchgauge.records.trace.trace_diff import TraceDiff, TraceSide
from torchgauge.records.trend import Trend, TrendSeries
from torchgauge.records.verdict import Verdict
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import Roofs
from torchgauge.records.work.size import Count

Saved = (
    Profile
    | CapacityPlan
    | Diagnosis
    | Count
    | Loop
    | Ranks
    | Parallel
    | Comparison
    | Snapshot
    | Generation
    | Growth
    | Serving
    | Sweep
    | Trace
    | TraceDiff
    | TrainingRun
    | Trend
    | Verdict
    | Advice
)
KINDS: dict[str, type[Saved]] = {
    str(field.default): kind
    for kind in get_args(Saved)
    for field in msgspec.structs.fields(kind)
    if field.name == "schema"
}

_SIDES = ("baseline", "current")
SAVED_TIMELINE = 64_000  # bytes of a trace's timeline; a larger one is left out of the saved record


class _Peek(msgspec.Struct):
    schema: str = ""


def encode(record: Record) -> bytes:
    """Return the record as JSON text, without the timelines of traces that are large."""
    if isinstance(record, Trace):
        record = msgspec.structs.replace(record, ranks=tuple(map(_without_large, record.ranks)))
    if isinstance(record, TraceDiff):
        sides = {name: _side_without_large(getattr(record, name)) for name in _SIDES}
        record = msgspec.structs.replace(record, **sides)
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def _without_large(rank: RankTrace) -> RankTrace:
    if not _is_large(rank.tree.timeline):
        return rank
    return msgspec.structs.replace(rank, tree=msgspec.structs.replace(rank.tree, timeline=None))


def _side_without_large(side: TraceSide) -> TraceSide:
    return msgspec.structs.replace(side, timeline=None) if _is_large(side.timeline) else side


def _is_large(timeline: Timeline | None) -> bool:
    return timeline is not None and len(timeline.columns) > SAVED_TIMELINE


def decode(data: bytes, origin: str = "the data") -> Saved:
    """Return the record that `data` holds.

    Raises RecordError: `record-unreadable` (no JSON, truncated), `record-foreign` (no record of
    torchgauge), `record-newer` (a later schema than this version knows), `record-invalid` (a field
    of the wrong type, a number that is none, or fields that do not fit together).
    """
    try:
        schema = msgspec.json.decode(data, type=_Peek).schema
    except msgspec.ValidationError as error:
        raise _foreign(origin) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(
            f"{origin} is not readable JSON.",
            id="record-unreadable",
            cause=str(error),
            remedy="The file is damaged or was cut off: copy it again, or repeat the run."
            if data.lstrip().startswith(b"{")
            else "Give a file that torchgauge wrote (--output-dir, profile.save).",
        ) from error
    kind = _kind_of(schema, origin)
    try:
        record = msgspec.json.decode(data, type=kind)
        for fault in faults(record):
            raise _invalid(origin, schema, f"{fault.message} - at `$.{fault.path}`")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid(origin, schema, " ".join(str(error).splitlines())) from error
    return record


def _invalid(origin: str, schema: str, cause: str) -> RecordError:
    return RecordError(
        f"{origin} has a field that does not fit its schema {schema}.",
        id="record-invalid",
        cause=cause,
        remedy="It was edited by hand or damaged: repair that field, or repeat the run.",
    )


def _kind_of(schema: str, origin: str) -> type[Saved]:
    """Return the type of the records of a schema."""
    if schema in KINDS:
        return KINDS[schema]
    kind, _, version = schema.partition("/")
    latest = {name.partition("/")[0]: name for name in KINDS}.get(kind)
    if latest is None or not version.isdecimal():
        raise _foreign(origin)
    raise RecordError(
        f"{origin} has schema {schema}; this torchgauge reads {latest}.",
        id="record-newer",
        cause="It was written by a newer torchgauge.",
        remedy="pip install --upgrade torchgauge-profiler",
    )


def _foreign(origin: str) -> RecordError:
    return RecordError(
        f"{origin} is not a torchgauge record.",
        id="record-foreign",
        cause="It is JSON without a torchgauge 'schema' field.",
        remedy="Give a file that torchgauge wrote (--output-dir, profile.save).",
    )


def save(record: Record, path: Path) -> Path:
    """Write the record to `path`, whole or not at all, and return the path."""
    return write_atomically(path, encode(record))


def load(path: Path) -> Saved:
    """Return the record saved at `path`.

    Raises InputError `file-missing`, `file-not-regular`, `file-too-large` and what `decode` raises.
    """
    return decode(read_bytes(path, RECORD), f"'{path}'")


def json_schema(schema: str = SCHEMA) -> dict[str, Any]:
    """Return the JSON Schema of the records of one kind, such as "torchgauge.profile/1"."""
    document = msgspec.json.schema(KINDS[schema])
    record = document["$defs"][KINDS[schema].__name__]
    record["properties"]["schema"] = {"const": schema}
    record["required"] = ["schema", *record["required"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": schema, **document}


# The figures of rows that are summed up over all of them.
_WORK = (
    "calls", "matmul_flops", "causal_matmul_flops", "vector_flops", "integer_ops", "bytes",
)  # fmt: skip
_FIGURES = (
    "calls", "host", "device", "flops", "bytes", "allocated", "allocations", "peak", "retained",
    "parameters", "unknown", "calls_without_bytes", "lower_bound",
)  # fmt: skip


class Fault(NamedTuple):
    """An inconsistency of a record, and the path of the field."""

    path: str
    message: str


Faults = Iterator[Fault]


def faults(record: object) -> Faults:
    """Yield the inconsistencies of a saved record."""
    check = _CHECKS.get(type(record))
    if check is not None:
        yield from check(record)


def _profile(record: Profile) -> Faults:
    yield from _environment(record.environment)
    if record.cost is not None:
        yield from _cost("cost", record.cost)
    if record.latency is not None:
        yield from _latency("latency", record.latency)
    if record.training is not None:
        yield from _training(record.training)
    if record.roofline is not None:
        nodes = 0 if record.cost is None else len(record.cost.nodes)
        for index, layer in enumerate(record.roofline.layers):
            yield from _place(f"roofline.layers[{index}].node", layer.node, nodes, "cost.nodes")
        yield from _roofs("roofline.roofs", record.roofline.roofs)
        if record.roofline.datasheet is not None:
            yield from _roofs("roofline.datasheet", record.roofline.datasheet)
    if record.tree is not None:
        yield from _tree("tree", record.tree)
    if record.generation is not None:
        yield from _generation_cell("generation", record.generation)
    if record.serving is not None:
        yield from itertools.starmap(
            Fault, agreement.level_disagreements("serving", record.serving)
        )


def _count(record: Count) -> Faults:
    yield from _cost("cost", record.cost)
    training = record.training
    if training is None:
        return
    if training.optimizer not in training.optimizers:
        yield Fault("training.optimizer", "it is none of `training.optimizers`")
        return
    for name in training.assumed.at_peak:
        if name not in (*training.parts, "workspace"):
            path = f"training.optimizers.{training.optimizer}.at_peak"
            yield Fault(path, f"'{name[:40]}' is not a part of a training step")


def _loop(record: Loop | TrainingRun) -> Faults:
    yield from _environment(record.environment)
    if isinstance(record, TrainingRun):
        yield from itertools.starmap(Fault, record.disagreements())
    if record.tree is not None:
        yield from _tree("tree", record.tree)


def _ranks(record: Ranks) -> Faults:
    yield from _filled("ranks", record.ranks)
    numbers = [rank.number for rank in record.ranks]
    if record.straggler is not None and record.straggler not in numbers:
        yield Fault("straggler", "it is none of `ranks`")


def _sweep(record: Sweep) -> Faults:
    yield from _environment(record.environment)
    count = len(record.cells)
    for index, cell in enumerate(record.cells):
        yield from _cell(f"cells[{index}]", cell)
    for index, number in enumerate(record.front.cells):
        yield from _place(f"front.cells[{index}]", number, count, "cells")
    for index, best in enumerate(record.best):
        named = (*([] if best.cell is None else [best.cell]), *best.ties, *best.unknown)
        for number in named:
            yield from _place(f"best[{index}]", number, count, "cells")
    for index, scaling in enumerate(record.scaling):
        yield from _scaling(f"scaling[{index}]", scaling)


def _cell(path: str, cell: Cell) -> Faults:
    if cell.done and cell.latency is None:
        yield Fault(f"{path}.latency", "a cell that is done has one")
    if cell.latency is not None:
        yield from _latency(f"{path}.latency", cell.latency)


def _scaling(path: str, scaling: Scaling) -> Faults:
    for name in ("latency", "memory"):
        fit = getattr(scaling, name)
        if fit is not None:
            yield from _filled(f"{path}.{name}.points", fit.points)


def _generation(record: Generation) -> Faults:
    yield from _environment(record.environment)
    for index, cell in enumerate(record.cells):
        yield from _generation_cell(f"cells[{index}]", cell)
    for index, stage in enumerate(record.trees):
        yield from _place(f"trees[{index}].cell", stage.cell, len(record.cells), "cells")
        yield from _tree(f"trees[{index}].tree", stage.tree)
        if stage.cost is not None:
            yield from _cost(f"trees[{index}].cost", stage.cost)
    if record.roofs is not None:
        yield from _roofs("roofs", record.roofs)


def _generation_cell(path: str, cell: GenerationCell) -> Faults:
    if not 0 <= cell.warmup <= len(cell.calls):
        yield Fault(f"{path}.warmup", "there are not as many calls")
    for index, call in enumerate(cell.calls):
        yield from _generation_call(f"{path}.calls[{index}]", call)


def _generation_call(path: str, call: GenerationCall) -> Faults:
    count = len(call.forwards)
    for name in call.forwards.__struct_fields__:
        column = getattr(call.forwards, name)
        if len(column) != count and (column or name != "device"):
            yield Fault(f"{path}.forwards.{name}", "it is not as long as `begin`")


def _serving(record: Serving) -> Faults:
    yield from _environment(record.environment)
    yield from itertools.starmap(Fault, agreement.serving_disagreements(record))


def _capacity_plan(record: CapacityPlan) -> Faults:
    yield from _environment(record.environment)
    yield from itertools.starmap(Fault, agreement.plan_disagreements(record))


def _trace(record: Trace) -> Faults:
    yield from _filled("ranks", record.ranks)
    for index, rank in enumerate(record.ranks):
        yield from _rank(f"ranks[{index}]", rank)


def _rank(path: str, rank: RankTrace) -> Faults:
    yield from _tree(f"{path}.tree", rank.tree)


def _snapshot(record: Snapshot) -> Faults:
    for index, device in enumerate(record.devices):
        if device.peak is not None:
            yield from _filled(f"devices[{index}].timeline", device.timeline)
        for path, stack in _stacks(device):
            yield from _place(f"devices[{index}].{path}", stack, len(record.stacks), "stacks")


def _stacks(device: DeviceMemory) -> Iterator[tuple[str, int]]:
    """Yield the path and the value of each stack index."""
    held = () if device.peak is None else device.peak.held
    named: dict[str, Sequence[Any]] = {
        "alive": device.alive, "peak.held": held, "ooms": device.ooms,
        "possible_leaks": device.possible_leaks, "held_over_time": device.held_over_time,
    }  # fmt: skip
    for name, rows in named.items():
        for index, row in enumerate(rows):
            if row.stack is not None:
                yield f"{name}[{index}].stack", row.stack


def _advice(record: Advice) -> Faults:
    yield from _environment(record.environment)
    for index, trial in enumerate(record.trials):
        output = trial.output
        if output and output.max_relative is not None and output.max_absolute is None:
            yield Fault(
                f"trials[{index}].output.max_absolute", "it is unknown where max_relative is known"
            )


def _trend(record: Trend) -> Faults:
    for index, series in enumerate(record.series):
        yield from _series(f"series[{index}]", series)


def _series(path: str, series: TrendSeries) -> Faults:
    yield from _filled(f"{path}.points", series.points)
    for index, point in enumerate(series.points):
        yield from _instant(f"{path}.points[{index}].created", point.created)
    count = len(series.points)
    for index, change in enumerate(series.changes):
        for name in ("likeliest", "first", "last"):
            yield from _place(
                f"{path}.changes[{index}].{name}", getattr(change, name), count, "points"
            )
    if series.correction is not None and not series.corrected:
        yield Fault(f"{path}.correction", "no point has a corrected value")


def _diagnosis(record: Diagnosis) -> Faults:
    yield from _environment(record.environment)
    for index, check in enumerate(record.checks):
        if (check.status == "found") != bool(check.findings):
            yield Fault(
                f"checks[{index}].status", "it is 'found' where there are findings, and else not"
            )


def _environment(environment: Environment) -> Faults:
    yield from _instant("environment.created", environment.created)


def _cost(path: str, cost: Cost) -> Faults:
    yield from _filled(f"{path}.nodes", cost.nodes)
    for index, node in enumerate(cost.nodes):
        if not (0 <= node.parent < index if index else node.parent == -1):
            yield Fault(
                f"{path}.nodes[{index}].parent",
                "the first node has none (-1), and a parent comes before its children",
            )
    for index, row in enumerate(cost.rows):
        yield from _place(f"{path}.rows[{index}].node", row.node, len(cost.nodes), "nodes")
    yield from _sums(f"{path}.nodes", cost.nodes, ("calls", "parameters"))
    yield from _sums(f"{path}.rows", cost.rows, _WORK)


def _latency(path: str, latency: Latency) -> Faults:
    yield from _filled(f"{path}.processes", latency.processes)
    for index, run in enumerate(latency.processes):
        if not 0 <= run.warmup <= len(run.samples):
            yield Fault(f"{path}.processes[{index}].warmup", "there are not as many samples")


def _training(training: TrainingTime) -> Faults:
    for name in sorted({"forward", "backward", "optimizer"} - {p.name for p in training.phases}):
        yield Fault("training.phases", f"there is no phase '{name}'")


def _roofs(path: str, roofs: Roofs) -> Faults:
    before = 0
    for index, point in enumerate(roofs.bandwidth):
        if point.working_set <= before:
            yield Fault(f"{path}.bandwidth[{index}].working_set", "they do not rise from above 0")
        if point.bytes_per_second <= 0:
            yield Fault(f"{path}.bandwidth[{index}].bytes_per_second", "it is not above 0")
        before = point.working_set


def _tree(path: str, tree: Tree) -> Faults:
    yield from _sums(f"{path}.rows", tree.rows, _FIGURES)
    for index, row in enumerate(tree.rows):
        if row.kernel is not None:
            yield from _filled(f"{path}.rows[{index}].kernel.durations", row.kernel.durations)
    yield from _timeline(f"{path}.timeline", tree.timeline)


def _trace_diff(record: TraceDiff) -> Faults:
    yield from _timeline("baseline.timeline", record.baseline.timeline)
    yield from _timeline("current.timeline", record.current.timeline)


def _timeline(path: str, timeline: Timeline | None) -> Faults:
    for message in () if timeline is None else disagreements(timeline):
        yield Fault(path, message)


def _sums(path: str, rows: Sequence[Any], names: Sequence[str]) -> Faults:
    """Yield the columns whose sum is beyond the integers that a record can hold."""
    for name in names:
        if sum(abs(getattr(row, name) or 0) for row in rows) >= LARGEST_INTEGER:
            yield Fault(f"{path}[...].{name}", "their total is not plausible")


def _filled(path: str, items: Sequence[object]) -> Faults:
    if not items:
        yield Fault(path, "it is empty")


def _place(path: str, number: int, count: int, list_name: str) -> Faults:
    if not 0 <= number < count:
        yield Fault(path, f"{number} is not an index of `{list_name}`, which has {count}")


def _instant(path: str, text: str) -> Faults:
    """Yield a time outside of 1970 to 9999; times are shown in local time and in UTC."""
    try:
        year = datetime.datetime.fromisoformat(text).year
    except ValueError:
        year = 0
    if not 1970 < year < 9999:
        yield Fault(path, f"'{text[:40]}' is not an ISO 8601 time since 1971")


_CHECKS: dict[type, Callable[[Any], Faults]] = {
    Profile: _profile, Count: _count, Loop: _loop, TrainingRun: _loop, Ranks: _ranks, Sweep: _sweep,
    Generation: _generation, Serving: _serving, CapacityPlan: _capacity_plan,
    Trace: _trace, TraceDiff: _trace_diff, Snapshot: _snapshot,
    Advice: _advice, Trend: _trend, Diagnosis: _diagnosis,
    Parallel: lambda record: itertools.starmap(Fault, record.disagreements()),
}  # fmt: skip
