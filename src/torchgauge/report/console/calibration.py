"""The noise that a calibration measured, for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table

from torchgauge import units
from torchgauge.records.doctor import Noise, NoiseRun
from torchgauge.report.console.text import Text

LABEL = 18


def view(noise: Noise) -> RenderableType:
    """Return the noise of a target on this host as something rich prints in any width."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", width=LABEL, no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in _rows(noise):
        table.add_row(f"  {label}", value)
    return Group(Text("Noise of this host for the target", style="bold cyan"), table)


def other_processes(run: NoiseRun) -> str:
    """Return how many cores other processes took while a machine's noise was measured."""
    return units.UNKNOWN if run.other is None else f"took {run.other:.2f} cores meanwhile"


def _rows(noise: Noise) -> list[tuple[str, str]]:
    duration = "" if noise.run.duration is None else f" in {units.time(noise.run.duration, 2)}"
    between_sessions = "needs 3 sessions: calibrate again another day"
    if noise.between is not None:
        between_sessions = f"{units.percent(noise.between)} over {noise.sessions} sessions"
    return [
        ("target", noise.run.workload),
        ("measured", f"{len(noise.run.differences)} A/A blocks{duration}, {noise.sessions} kept"),
        (
            "of one block",
            f"{units.percent(noise.deviation)} (standard deviation of d), at most "
            f"{units.percent(noise.deviation_high)}",
        ),
        ("a gate", f"of 10 blocks tells changes from +{units.percent(noise.resolvable)} on"),
        ("between sessions", between_sessions),
        ("other processes", other_processes(noise.run)),
        ("kept in", noise.kept_in),
    ]
