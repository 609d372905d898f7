"""The runs of a history as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from torchgauge.records.run import Run
from torchgauge.report.console.fitted_table import fitted_table
from torchgauge.report.console.text import Text
from torchgauge.report.content.document import Column, Row, Value
from torchgauge.visible import one_line

COLUMNS = (
    # Of a generation the shape, of a load the level: runs of one record differ in nothing else.
    Column("part", left_aligned=True, max_width=44),
    Column("run", left_aligned=True),
    Column("commit", left_aligned=True),
    Column("branch", priority=1, left_aligned=True, max_width=20),
    Column("device", priority=2, left_aligned=True),
    Column("precision", priority=4, left_aligned=True),
    Column("machine", priority=3, left_aligned=True),
    Column("labels", priority=5, left_aligned=True, max_width=30),
)


def view(runs: Sequence[Run], width: int) -> RenderableType:
    """Return one line per run."""
    if not runs:
        return Text("No such run.")
    lines = [Row(f"{created_at(run)}  {run.target}", _cells(run)) for run in runs]
    return fitted_table("created           target", lines, COLUMNS, width)


def created_at(run: Run) -> str:
    """Return when a run was made, to the minute and in UTC."""
    return run.created[:16].replace("T", " ")


def head(run: Run) -> Text:
    """Return a run's id, commit, branch, message and labels in one line."""
    commit = run.commit[:10] + (" with changes" if run.dirty else "")
    labels = " ".join(f"{key}={value}" for key, value in run.labels.items())
    parts = [f"run {run.uuid}", commit, run.branch, run.message, labels]
    return Text(one_line(" · ".join(filter(None, parts))), style="dim")


def _cells(run: Run) -> dict[str, Value]:
    cells = {
        "part": run.model.partition(", ")[2],
        "run": run.uuid[:8],
        "commit": run.commit[:10] + ("+" if run.dirty else ""),
        "branch": run.branch,
        "device": run.device,
        "precision": run.precision,
        "machine": run.machine[:8],
        "labels": " ".join(f"{key}={value}" for key, value in run.labels.items()),
    }
    return {name: text for name, text in cells.items() if text}
