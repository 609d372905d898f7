"""Advice: accepted changes with their code, then rejected and untried ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchgauge.records.advice import Advice, Best, Trial
from torchgauge.report.content import advice_words as words
from torchgauge.report.content.document import (
    Block,
    Column,
    Detailed,
    Document,
    Facts,
    Heading,
    Listing,
    Note,
    Options,
    Row,
    Table,
    Tone,
    Warnings,
    cells,
)
from torchgauge.visible import one_line

TONES: dict[str, Tone] = {
    "undecided": "doubtful",
    "rejected": "",
    "failed": "bad",
    "untried": "faint",
}
COLUMNS = (
    Column("speed-up", get=lambda trial: words.times(trial.speed_up)),
    Column("95 %", priority=1, get=lambda trial: words.interval(trial.speed_up)),
    Column("memory", priority=2, get=words.memory),
    Column("error", priority=3, get=lambda trial: words.error(trial.output), tone="faint"),
)

# Candidates that were not tried for one reason are one row.
GROUPED_FROM = 4


def document(advice: Advice, _options: Options) -> Document:
    """Return what held with its code, what did not and why, and what to use."""
    blocks: list[Block] = list(_accepted(advice.accepted))
    if advice.combinations:
        blocks.append(Heading("Together", tone=""))
        for combination in advice.combinations:
            name = f"{words.SIGNS[combination.outcome]} {' + '.join(combination.candidates)}"
            blocks += _with_reason(name, one_line(combination.reason))
    if best := words.best_combination(advice):
        blocks += _best(best)
    for outcome, tone in TONES.items():
        if trials := advice.of(outcome):  # type: ignore[arg-type]
            blocks.append(_other_trials(words.TITLES[outcome], trials, tone))
    if estimates := [trial for trial in advice.trials if trial.assumed]:
        blocks.append(Heading("On several devices", how="estimated", tone=""))
        for trial in estimates:
            blocks += _with_reason(trial.title, "; ".join(map(words.assumed, trial.assumed)))
    blocks += [Warnings(advice.warnings)] if advice.warnings else []
    blocks += [Note("Interrupted before its end.", "doubtful")] if advice.interrupted else []
    facts = Facts(words.facts(advice), label=10)
    return Document(
        words.title(advice),
        headline=words.headline(advice),
        facts=facts,
        blocks=blocks,
        names=(words.title(advice),),
    )


def _accepted(accepted: Sequence[Trial]) -> Iterator[Block]:
    if accepted:
        rows = [Row(f"✓ {trial.id}", cells(COLUMNS, trial), tone="good") for trial in accepted]
        heading = words.TITLES["accepted"]
        yield Table(title=heading, how="measured", columns=COLUMNS, rows=rows, layout="fitted")
    for trial in accepted:
        yield Heading(trial.title, tone="", level=1)
        yield Listing(trial.code, "sh" if trial.language == "shell" else "python")
        yield from (Note(detail, "faint", tight=True, level=2) for detail in words.details(trial))


def _with_reason(name: str, reason: str) -> list[Block]:
    return [Note(name, tight=True, level=1), Note(reason, "faint", tight=True, level=2)]


def _best(best: Best) -> list[Block]:
    speed_up = f"{words.times(best.speed_up)} {words.interval(best.speed_up)}"
    candidates = f"{' + '.join(best.candidates)}, {speed_up}"
    listings: list[Block] = [Listing(best.environment, "sh")] if best.environment else []
    listings += [Listing(best.code)] if best.code else []
    return [Heading("What to use", headline=candidates, tone=""), *listings]


def _other_trials(heading: str, trials: Sequence[Trial], tone: Tone) -> Facts:
    by_reason: dict[str, list[Trial]] = {}
    for trial in trials:
        by_reason.setdefault(words.reason(trial), []).append(trial)
    rows: list[tuple[str, str | Detailed]] = []
    for reason, of_reason in by_reason.items():
        if len(of_reason) < GROUPED_FROM:
            rows += [(f"{words.SIGNS[trial.outcome]} {trial.id}", reason) for trial in of_reason]
        else:
            names = ", ".join(trial.id for trial in of_reason)
            sign = words.SIGNS[of_reason[0].outcome]
            rows.append((f"{sign} {len(of_reason)} others", f"{reason} {names}"))
    return Facts(rows, heading, label=0, tone=tone)
