"""The runs of a history as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from torchgauge.model.run import Run
from torchgauge.report.fitted_table import Column, Line, fitted_table
from torchgauge.report.text import Text
from torchgauge.visible import one_line

COLUMNS = (
    Column("run", left=True),
    Column("commit", left=True),
    Column("branch", need=1, left=True, most=20),
    Column("device", need=2, left=True),
    Column("precision", need=4, left=True),
    Column("machine", need=3, left=True),
    Column("labels", need=5, left=True, most=30),
)


def view(runs: Sequence[Run], width: int) -> RenderableType:
    """Return one line per run."""
    if not runs:
        return Text("No such run.")
    lines = [Line(0, f"{when(run)}  {run.target}", _cells(run)) for run in runs]
    return fitted_table("created           target", lines, COLUMNS, width)


def when(run: Run) -> str:
    """Return to the minute when a run was made, in UTC."""
    return run.created[:16].replace("T", " ")


def head(run: Run) -> Text:
    """Return what is known of a run beside its record."""
    commit = run.commit[:10] + (" with changes" if run.dirty else "")
    labels = " ".join(f"{key}={value}" for key, value in run.labels.items())
    told = [f"run {run.uuid}", commit, run.branch, run.message, labels]
    return Text(one_line(" · ".join(filter(None, told))), style="dim")


def _cells(run: Run) -> dict[str, str]:
    cells = {
        "run": run.uuid[:8],
        "commit": run.commit[:10] + ("+" if run.dirty else ""),
        "branch": run.branch,
        "device": run.device,
        "precision": run.precision,
        "machine": run.machine[:8],
        "labels": " ".join(f"{key}={value}" for key, value in run.labels.items()),
    }
    return {name: text for name, text in cells.items() if text}
