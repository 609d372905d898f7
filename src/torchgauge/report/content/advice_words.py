"""Words and figures of an advice report, shared by all its formats."""

from __future__ import annotations

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
    step = "a training step" if target.training else "inference"
    rows = [
        ("target", one_line(target.spec)),
        ("input", one_line(inputs)),
        ("run as", f"{step}, {target.precision} on {target.device}"),
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
        for name, value in (
            ("max error", check.max_absolute),
            ("mean error", check.mean_absolute),
        )
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
