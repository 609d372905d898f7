"""Doctor's findings for a terminal; 80 columns are enough, and a pipe gets no colours."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table

from torchgauge import units
from torchgauge.records.doctor import Check, Diagnosis, Noise
from torchgauge.records.finding import Finding
from torchgauge.report.console.calibration import other_processes
from torchgauge.report.console.plain import plain
from torchgauge.report.console.text import END, Text

LABEL = 14
SIGNS = {
    "serious": ("✗", "bold red"),
    "warning": ("!", "bold yellow"),
    "info": ("i", "cyan"),
    "clear": ("✓", "green"),
    "unknown": ("?", "dim"),
}


def render(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as plain text (see `plain`)."""
    return plain(lambda _width: view(diagnosis))


def view(diagnosis: Diagnosis) -> RenderableType:
    """Return the diagnosis as something rich prints in any width."""
    blocks = [_head(diagnosis), Text(""), _findings(diagnosis), Text(""), _checks(diagnosis)]
    if diagnosis.noise is not None:
        blocks += [Text(""), _noise(diagnosis.noise)]
    return Group(*blocks)


def _head(diagnosis: Diagnosis) -> RenderableType:
    machine, software = diagnosis.environment.machine, diagnosis.environment.software
    cores = machine.cpu_quota or machine.usable_cores
    torch = f"torch {software.torch}" if software.torch else "no torch"
    return Group(
        Text("What makes timings lie here", style="bold cyan"),
        _rows(
            ("machine", f"{machine.cpu}, {cores:g} cores, {units.size(machine.memory, 3)}"),
            ("software", f"{torch}, Python {software.python}, {machine.system}"),
        ),
    )


def _rows(*rows: tuple[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", width=LABEL, no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(f"  {label}", value)
    return table


def _findings(diagnosis: Diagnosis) -> RenderableType:
    findings = diagnosis.findings
    table = Table.grid(padding=(0, 1))
    table.add_column(width=3, justify="right")
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(Text(*SIGNS[finding.severity]), _finding(finding))
    return Group(Text(f"Found: {_tally(findings)}", style="bold"), table)


def _finding(finding: Finding) -> Text:
    return Text.assemble(
        (finding.title, "bold"),
        (f"  [{finding.id}]", "dim"),
        END,
        finding.evidence,
        END,
        ("→ ", "dim"),
        finding.remedy,
    )


def _tally(findings: tuple[Finding, ...]) -> str:
    names = {"serious": "serious", "warning": "warning", "info": "to know"}
    parts = []
    for severity, name in names.items():
        if count := sum(finding.severity == severity for finding in findings):
            plural = "s" if severity == "warning" and count > 1 else ""
            parts.append(f"{count} {name}{plural}")
    return ", ".join(parts) or "nothing"


def _checks(diagnosis: Diagnosis) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=3, justify="right")
    table.add_column(style="dim", width=LABEL, no_wrap=True)
    table.add_column(overflow="fold")
    for check in diagnosis.checks:
        unknown = f"unknown: {check.unknown}" if check.unknown else ""
        text = Text.assemble(
            check.observed, "; " if check.observed and unknown else "", (unknown, "dim")
        )
        table.add_row(Text(*SIGNS[_sign(check)]), check.title, text)
    total, complete = len(diagnosis.checks), sum(not check.unknown for check in diagnosis.checks)
    title = f"Checks: {complete} of {total} made in full"
    return Group(Text(title, style="bold"), table)


def _sign(check: Check) -> str:
    severities = {finding.severity for finding in check.findings}
    return next((sign for sign in SIGNS if sign in severities), check.status)


def _noise(noise: Noise) -> RenderableType:
    figures = (noise.deviation, noise.deviation_high, noise.resolvable)
    deviation, high, resolvable = (units.percent(figure, smallest=1e-5) for figure in figures)
    return Group(
        Text.assemble(("Noise floor", "bold"), (f"  {noise.how}", "dim italic")),
        _rows(
            ("s_d", f"{deviation} per A/A block, at most {high} (95 %, {noise.blocks} blocks)"),
            ("a gate", f"of ten blocks tells changes from {resolvable} on"),
            ("others", other_processes(noise.run)),
            ("kept in", noise.kept_in or "nowhere"),
        ),
    )
