"""Advice: accepted changes with their code, then rejected and untried ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchgauge import units
from torchgauge.records.advice import (
    Advice,
    Assumed,
    Best,
    LayerGain,
    LeftOut,
    OutputCheck,
    SpeedUp,
    Trial,
)
from torchgauge.report.content import document as doc
from torchgauge.visible import one_line

SIGNS = {"accepted": "✓", "undecided": "?", "rejected": "✗", "failed": "!", "untried": "–"}
TITLES = {
    "accepted": "Confirmed",
    "undecided": "Tried and undecided",
    "rejected": "Tried and rejected",
    "failed": "Tried and failed",
    "untried": "Not tried",
}


def title(advice: Advice) -> str:
    """Name what was advised on."""
    return one_line(advice.target.name)


def headline(advice: Advice) -> str:
    """Say in one sentence what came out."""
    trial_count = len(advice.trials) - len(advice.of("untried"))
    confirmed = len(advice.accepted)
    text = f"{confirmed} of {trial_count} candidates confirmed"
    if advice.best is not None:
        best = advice.best
        combination = " + ".join(best.candidates)
        return f"{text}; {combination}: {times(best.speed_up)}"
    return text


def best_combination(advice: Advice) -> Best | None:
    """Return the best if it combines candidates; a single one is shown with its code already."""
    best = advice.best
    return best if best is not None and len(best.candidates) > 1 else None


def facts(advice: Advice) -> list[tuple[str, str]]:
    """Return what was measured, on what, and by which rule."""
    target, machine = advice.target, advice.environment.machine
    inputs = ", ".join("×".join(map(str, tensor.shape)) or tensor.name for tensor in target.inputs)
    rows = [
        ("target", one_line(target.spec)),
        ("input", one_line(inputs)),
        ("run as", f"{target.step}, {target.precision} on {target.device}"),
        ("machine", one_line(machine.cpu)),
        ("a call", f"{units.time(advice.latency)}, {units.size(advice.memory)} at its peak"),
        (
            "rule",
            f"significantly more than {units.percent(advice.minimum_gain)} faster on fresh blocks, "
            f"one-sided at {units.percent(1 - advice.alpha, 3)}, Holm over all that were confirmed",
        ),
    ]
    if advice.metric:
        rows.append(("metric", one_line(advice.metric)))
    if advice.duration is not None:
        rows.append(("took", units.time(advice.duration, 3)))
    return [pair for pair in rows if pair[1]]


def times(speed_up: SpeedUp | None) -> str:
    """Return a speed-up: '1.18×', with that of CPU time where the machine was busy."""
    if speed_up is None:
        return ""
    cpu = speed_up.cpu
    suffix = f" (CPU {units.significant(cpu.value)}×)" if cpu is not None and cpu.busy else ""
    return f"{units.significant(speed_up.value)}×{suffix}"


def interval(speed_up: SpeedUp | None) -> str:
    """Return a speed-up's interval: '[1.12, 1.25]'."""
    if speed_up is None:
        return ""
    ends = (units.significant(end) for end in (speed_up.interval.low, speed_up.interval.high))
    return f"[{', '.join(ends)}]"


def memory(trial: Trial) -> str:
    """Return the change of peak memory: '−48 %'."""
    change = trial.memory_change
    if change is None:
        return ""
    sign = "−" if change < 0 else "+"
    return "±0 %" if abs(change) < 5e-4 else f"{sign}{units.percent(abs(change))}"


def error(check: OutputCheck | None) -> str:
    """Return the output's largest error, relative to its largest value."""
    if check is None or check.max_relative is None:
        return ""
    if check.max_relative == 0:
        return "0"
    return f"{check.max_relative:.1e}".replace("e-0", "e-")


def output(check: OutputCheck | None) -> str:
    """Describe an output's differences: errors, cosine, agreement, the user's metric."""
    if check is None:
        return ""
    parts = [
        f"{name} {_short(value)}"
        for name, value in (("max error", check.max_absolute), ("mean error", check.mean_absolute))
        if value is not None
    ]
    if check.max_relative is not None:
        share = f" ({error(check)} of the largest value, allowed {_short(check.bound)})"
        parts[:1] = [parts[0] + (share if check.bounded == "max_relative" else "")]
    if check.cosine is not None:
        parts.append(f"cosine {check.cosine:.6f}")
    if check.argmax_agreement is not None:
        parts.append(f"argmax agrees in {units.percent(check.argmax_agreement, 3)}")
    if check.metric_before is not None and check.metric_after is not None:
        before, after = (
            units.significant(value, 4) for value in (check.metric_before, check.metric_after)
        )
        parts.append(f"metric {before} → {after}")
    return ", ".join(parts)


def _short(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}".replace("e-0", "e-").replace("e+00", "")


def one_off(trial: Trial) -> str:
    """Return the cost of the first call and when it is earned back."""
    if trial.one_off is None or trial.break_even is None or trial.break_even < 2:
        return ""
    return f"{units.time(trial.one_off, 2)} once, earned back in {trial.break_even:,} calls"


def helped(trial: Trial) -> str:
    """Name the layers that got faster."""
    return ", ".join(_gain_text(gain) for gain in trial.layers[:3])


def _gain_text(gain: LayerGain) -> str:
    path = one_line(gain.path) or "the model itself"
    return f"{path} −{units.percent(abs(gain.change))} ({units.time(abs(gain.seconds), 2)} less)"


def assumed(assumption: Assumed) -> str:
    """Say an estimated figure and the model behind it."""
    return f"{assumption.name}: {units.amount(assumption.value, assumption.unit, digits=3)}"


def left_out(trial: Trial) -> str:
    """Say which layers were not changed, and why: 'layer4.fc: error 3.1 % > 1 %'."""
    return "; ".join(map(_left_out, trial.left_out))


def _left_out(layers: LeftOut) -> str:
    check = layers.output
    cause = check.reason.removesuffix(".")
    if check.bounded == "metric" and check.metric_before is not None:
        after = "not a number"
        if check.metric_after is not None:
            after = units.significant(check.metric_after, 4)
        cause = f"metric {units.significant(check.metric_before, 4)} → {after}"
    elif check.max_relative is not None and check.max_relative > check.bound:
        cause = f"error {units.percent(check.max_relative)} > {units.percent(check.bound)}"
    suffix = "" if layers.tested_alone else " with the others"
    return one_line(f"{', '.join(layers.paths)}: {cause}{suffix}")


def details(trial: Trial) -> list[str]:
    """Return the lines below an accepted candidate."""
    parts = (
        output(trial.output),
        one_off(trial),
        helped(trial) and f"helps {helped(trial)}",
        left_out(trial) and f"left out: {left_out(trial)}",
    )
    return [part for part in parts if part]


def reason(trial: Trial) -> str:
    """Say why a candidate ended so, on one line."""
    layers = left_out(trial)
    return one_line(f"{trial.reason} Left out: {layers}." if layers else trial.reason)


TONES: dict[str, doc.Tone] = {
    "undecided": "doubtful",
    "rejected": "",
    "failed": "bad",
    "untried": "faint",
}
COLUMNS = (
    doc.Column("speed-up", get=lambda trial: times(trial.speed_up)),
    doc.Column("95 %", priority=1, get=lambda trial: interval(trial.speed_up)),
    doc.Column("memory", priority=2, get=memory),
    doc.Column("error", priority=3, get=lambda trial: error(trial.output), tone="faint"),
)

# Candidates that were not tried for one reason are one row.
GROUPED_FROM = 4


def document(advice: Advice, _options: doc.Options) -> doc.Document:
    """Return what held with its code, what did not and why, and what to use."""
    blocks: list[doc.Block] = list(_accepted(advice.accepted))
    if advice.combinations:
        blocks.append(doc.Heading("Together", tone=""))
        for combination in advice.combinations:
            name = f"{SIGNS[combination.outcome]} {' + '.join(combination.candidates)}"
            blocks += _with_reason(name, one_line(combination.reason))
    if best := best_combination(advice):
        blocks += _best(best)
    for outcome, tone in TONES.items():
        if trials := advice.of(outcome):  # type: ignore[arg-type]
            blocks.append(_other_trials(TITLES[outcome], trials, tone))
    if estimates := [trial for trial in advice.trials if trial.assumed]:
        blocks.append(doc.Heading("On several devices", how="estimated", tone=""))
        for trial in estimates:
            blocks += _with_reason(trial.title, "; ".join(map(assumed, trial.assumed)))
    blocks += [doc.Warnings(advice.warnings)] if advice.warnings else []
    blocks += [doc.Note("Interrupted before its end.", "doubtful")] if advice.interrupted else []
    facts_block = doc.Facts(facts(advice), label=10)
    return doc.Document(
        title(advice),
        headline=headline(advice),
        facts=facts_block,
        blocks=blocks,
        names=(title(advice),),
    )


def _accepted(accepted: Sequence[Trial]) -> Iterator[doc.Block]:
    if accepted:
        rows = [
            doc.Row(f"✓ {trial.id}", doc.cells(COLUMNS, trial), tone="good") for trial in accepted
        ]
        heading = TITLES["accepted"]
        yield doc.Table(title=heading, how="measured", columns=COLUMNS, rows=rows, layout="fitted")
    for trial in accepted:
        yield doc.Heading(trial.title, tone="", level=1)
        yield doc.Listing(trial.code, "sh" if trial.language == "shell" else "python")
        yield from (doc.Note(detail, "faint", tight=True, level=2) for detail in details(trial))


def _with_reason(name: str, reason: str) -> list[doc.Block]:
    return [doc.Note(name, tight=True, level=1), doc.Note(reason, "faint", tight=True, level=2)]


def _best(best: Best) -> list[doc.Block]:
    speed_up = f"{times(best.speed_up)} {interval(best.speed_up)}"
    candidates = f"{' + '.join(best.candidates)}, {speed_up}"
    listings: list[doc.Block] = [doc.Listing(best.environment, "sh")] if best.environment else []
    listings += [doc.Listing(best.code)] if best.code else []
    return [doc.Heading("What to use", headline=candidates, tone=""), *listings]


def _other_trials(heading: str, trials: Sequence[Trial], tone: doc.Tone) -> doc.Facts:
    by_reason: dict[str, list[Trial]] = {}
    for trial in trials:
        by_reason.setdefault(reason(trial), []).append(trial)
    rows: list[tuple[str, str | doc.Detailed]] = []
    for explanation, of_reason in by_reason.items():
        if len(of_reason) < GROUPED_FROM:
            rows += [(f"{SIGNS[trial.outcome]} {trial.id}", explanation) for trial in of_reason]
        else:
            names = ", ".join(trial.id for trial in of_reason)
            sign = SIGNS[of_reason[0].outcome]
            rows.append((f"{sign} {len(of_reason)} others", f"{explanation} {names}"))
    return doc.Facts(rows, heading, label=0, tone=tone)
