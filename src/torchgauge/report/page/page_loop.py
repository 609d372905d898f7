"""The page of a loop: its steps in order, and where the time of one goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchgauge import units
from torchgauge.analyze.timeline.tree import ENGINE, OPTIMIZING
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.loader_wait import LoaderWait
from torchgauge.records.timeline.loop import Loop, Phase, Stretch
from torchgauge.records.timeline.tree import Tree
from torchgauge.report.content import loop as loop_report
from torchgauge.report.content import section as time_sections
from torchgauge.report.content.document import Column
from torchgauge.report.content.findings import findings_of
from torchgauge.report.content.loop import loading_note
from torchgauge.report.page import page_profile, page_tables, page_tree
from torchgauge.report.page import page_series as page_method
from torchgauge.report.page.page_document import figure, finding_entry, first_screen
from torchgauge.report.page.page_profile import ONE_STEP
from torchgauge.report.page.page_series import rows
from torchgauge.report.page.timeline.page_timeline import timeline
from torchgauge.report.tables import loader_waits as loader_report
from torchgauge.report.tables.loop_memory import memory_blocks

# How far the tree's sum and a bare step may be apart without a word.
AGREE = 0.05
PHASES = ("zero_grad", "forward", "loss", "backward", "recompute", "optimizer")
_ELSE = "everything else"
_BUCKETS = {OPTIMIZING: "optimizer", ENGINE: "backward"}
_LABELS = {"bare": "time of a step", "recorded": "while recorded"}
_WAITS = (
    Column("loader", "loader", "text", lambda part: loader_report.loader_name(part[0])),
    Column("part", "waiting for", "text", lambda part: loader_report.LABELS[part[1]][0]),
    Column("note", "where", "text", lambda part: loader_report.LABELS[part[1]][1]),
    Column("time", "time of a step", "time", lambda part: part[2] / part[0].steps),
    Column("share", "share of a step", "share", lambda part: part[2] / part[0].duration),
)
# Of steps, in words.
_STEPS: dict[Phase, str] = {
    "bare": "without a profiler",
    "paused": "without clocks",
    "ready": "getting ready",
    "estimate": "estimating the cost",
    "warmup": "profiler warming up",
    "record": "recorded",
    "settle": "settling",
    "stamp": "layers timed",
    "memory": "memory watched",
}


def overview(loop: Loop) -> dict[str, Any]:
    """Return the first screen of a loop."""
    ended = [["steps", f"{loop.count:,}", loop_report.ENDS[loop.by]]]
    rank = loop.rank
    return first_screen(
        [*ended, *([["rank", f"{rank.number} of {rank.world}", ""]] if rank else [])],
        _figures(loop),
        [*_verdict(loop), *(finding_entry(finding) for finding in findings_of(loop))],
        loop.all_warnings,
        created=loop.environment.created,
        phases=phases(loop.tree),
        complete=loop.complete,
        interrupted=loop.interrupted,
    )


def _verdict(loop: Loop) -> list[dict[str, Any]]:
    """Return the verdict as the first thing that matters."""
    verdict = loop.verdict
    if verdict is None:
        return []
    next_command = f" Next: {verdict.command}" if verdict.command else ""
    finding = Finding(
        id="verdict",
        severity="warning" if verdict.fault else "info",
        title=verdict.title,
        evidence=" ".join(verdict.evidence) + next_command,
        search=verdict.layer,
        view="steps",
    )
    return [finding_entry(finding)]


def _figures(loop: Loop) -> list[dict[str, str]]:
    """Return the summary's rows, and the rates of a step."""
    section = loop_report.steps(loop)
    figures = [
        figure(_LABELS.get(row.label, row.label), row.value, row.note, section.how, "steps")
        for row in section.rows
    ]
    if loop.utilization is not None:
        used = time_sections.utilization(loop.utilization, rates=True)
        figures += [
            figure(row.label, row.value, row.note, row.how or used.how, "steps")
            for row in used.rows
            if row.label in used.headlines
        ]
    return figures


def phases(tree: Tree | None) -> dict[str, Any] | None:
    """Return the host's time of a step by phase; None where only one phase is known."""
    if tree is None:
        return None
    times = dict.fromkeys((*PHASES, _ELSE), 0)
    for row in tree.rows:
        is_layer = row.kind in ("model", "layer")
        phase = row.phase or ("forward" if is_layer else _BUCKETS.get(row.name, _ELSE))
        times[phase if phase in times else _ELSE] += row.host or 0
    parts = [[phase, time] for phase, time in times.items() if time]
    if sum(phase != _ELSE for phase, _ in parts) < 2:
        return None
    return {"parts": parts, "step": sum(time for _, time in parts), "how": tree.how}


def tree(loop: Loop) -> dict[str, Any] | None:
    """Return the tree of a step, and why it is longer or shorter than the steps were."""
    if loop.tree is None:
        return None
    notes = filter(None, (_tree_note(loop, loop.tree), loading_note(loop, loop.tree)))
    return {**page_tree.columns(loop.tree), "note": " ".join(notes)}


def _tree_note(loop: Loop, step: Tree) -> str:
    """Say how the tree's sum and the lengths of steps differ; empty where they agree."""
    total, bare, recorded = step.root.host_time, loop.bare, loop.median("record")
    if not total or not bare or abs(total / bare - 1) < AGREE:
        return ""
    with_profiler = "" if recorded is None else f", and {units.time(recorded, 3)} while recorded"
    return (
        f"The tree adds up to {units.time(total, 3)}, a bare step took {units.time(bare, 3)}"
        f"{with_profiler} (medians): layers are scaled to steps in which only they were timed, "
        f"everything else is as recorded{', which slows it' * (total > bare)}. "
        "Read its shares rather than its times."
    )


def tables(loop: Loop) -> list[dict[str, Any]] | None:
    """Return the tables of a step, what it waited for, its memory, and lines of functions."""
    listed_tables = [] if loop.tree is None else page_tables.all_tables(loop.tree)
    if any(wait.parts for wait in loop.loader_waits):
        listed_tables.append(_loader_waits(loop.loader_waits))
    if loop.memory is not None:
        blocks = memory_blocks(loop.memory, rows=None)
        listed_tables += [page_tables.document_table(block) for block in blocks]
    if loop.functions:
        listed_tables.append(page_tables.traced_lines(loop.functions))
    return listed_tables or None


def _loader_waits(waits: Sequence[LoaderWait]) -> dict[str, Any]:
    """Return the parts of the waits for each loader."""
    parts = [
        (wait, name, seconds)
        for wait in waits
        if wait.parts is not None
        for name, seconds in wait.parts.by_name.items()
        if seconds
    ]
    return page_tables.records_table("waiting for data", _WAITS, parts)


def steps(loop: Loop) -> dict[str, Any] | None:
    """Return every step's duration in whole nanoseconds, and its phase."""
    if not loop.steps:
        return None
    return {
        "durations": [time for stretch in loop.stretches for time in _ns(stretch)],
        "phases": [
            [_STEPS[stretch.phase], len(stretch.durations), sum(_ns(stretch))]
            for stretch in loop.stretches
        ],
        "rows": rows(loop_report.steps(loop).rows),
    }


def _ns(stretch: Stretch) -> list[int]:
    return [round(seconds * 1e9) for seconds in stretch.durations]


def method(loop: Loop) -> dict[str, Any]:
    """Return how the loop's figures were obtained."""
    parts: list[list[Any]] = [["What the words mean", [*page_method.KINDS]]]
    if loop.tree is not None:
        parts.append(["Tree", page_method.tree_facts(loop.tree)])
    return {"parts": parts, "figures": []}


PARTS = {
    "overview": overview,
    "memory_ran_out": page_profile.memory_ran_out,
    "timeline": lambda loop: timeline(loop.tree, ONE_STEP),
    "tree": tree,
    "tables": tables,
    "compilation": page_profile.of_loop,
    "steps": steps,
    "method": method,
    "environment": page_method.environment,
}
