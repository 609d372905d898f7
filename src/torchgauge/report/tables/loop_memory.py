"""The memory of a loop's steps: the steps, what lived at the peak, checkpoints, what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchgauge import units
from torchgauge.records.memory.loop_memory import AliveGroup, Checkpoints, LoopMemory, WatchedStep
from torchgauge.report.content.document import Column, Table, rows_of

TOP = 8  # rows of a table on a terminal


def memory_blocks(memory: LoopMemory, rows: int | None = TOP) -> Iterator[Table]:
    """Yield the steps, what was alive at the highest peak, and what outlives steps.

    A table has no more than so many rows; None: all.
    """
    steps = memory.steps
    yield Table(
        title=f"Memory by step on {memory.device}",
        how=memory.how,
        columns=_STEP_COLUMNS,
        rows=rows_of(
            _STEP_COLUMNS, steps[-(rows or len(steps)) :], lambda step: f"step {step.number}"
        ),
        layout="fitted",
        total_rows=len(steps),
        noun="earlier steps",
    )
    yield _table(
        f"Alive at the peak of step {memory.highest.number}",
        memory.at_peak[:rows],
        len(memory.at_peak),
        *([] if memory.checkpoints is None else [_note(memory.checkpoints, memory.highest.peak)]),
    )
    if memory.outliving:
        growth = f", growing by {units.size(memory.growth)} a step" if memory.growth else ""
        title = f"Alive after step {steps[-1].number}, states left out{growth}"
        yield _table(title, memory.outliving[:rows], len(memory.outliving))


def _table(title: str, groups: Sequence[AliveGroup], total: int, *notes: str) -> Table:
    return Table(
        title=title, first="made by", columns=_COLUMNS, rows=rows_of(_COLUMNS, groups, _name),
        recorded=True, layout="fitted", notes=notes, total_rows=total, noun="origins",
    )  # fmt: skip


def _note(checkpoints: Checkpoints, peak: int) -> str:
    shares = checkpoints.shares.items()
    listed = ", ".join(f"{share} {units.percent(size / peak)}" for share, size in shares)
    return (
        f"Checkpoints: {checkpoints.segments:,} segments ran again and made "
        f"{units.size(checkpoints.recomputed)}. Of the peak: {listed}."
    )


def _name(group: AliveGroup) -> str:
    name = group.layer or group.operator.removeprefix("aten::") or group.part
    return f"{name} ×{group.count:,}" if group.count > 1 else name


def _holder(group: AliveGroup) -> str:
    return f"graph of {group.holder}" if group.by_graph else group.holder


def _steps(group: AliveGroup) -> str:
    return "–".join(map(str, sorted({*group.steps[:1], *group.steps[-1:]} - {0})))


def _peak_place(step: WatchedStep) -> str:
    return ", ".join(filter(None, (step.phase, step.layer, step.line)))


_STEP_COLUMNS = (
    Column("peak", unit="bytes"),
    Column("after", unit="bytes"),
    Column("allocated", priority=3, unit="bytes"),
    Column("earlier", "of earlier steps", "bytes", lambda step: step.earlier or None, 2),
    Column("at the peak", None, "text", _peak_place, 1, True, recorded=True, max_width=48),
)
_COLUMNS = (
    Column("bytes", unit="bytes", get=lambda group: group.size),
    Column("a step", unit="bytes", get=lambda group: group.growth or None),
    Column("phase", priority=2, left_aligned=True),
    Column("line", left_aligned=True, recorded=True, max_width=24),
    Column("steps", priority=3, left_aligned=True, get=_steps),
    Column("held by", priority=1, left_aligned=True, recorded=True, max_width=28, get=_holder),
)
