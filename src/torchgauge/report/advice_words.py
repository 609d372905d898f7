"""What every form of advice says, in words and figures, before it is laid out."""

from __future__ import annotations

from torchgauge import units
from torchgauge.model.advice import (
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

SIGNS = {"accepted": "✓", "rejected": "✗", "failed": "!", "untried": "–"}
TITLES = {
    "accepted": "What held",
    "rejected": "What did not",
    "failed": "What could not be run",
    "untried": "Not tried",
}


def title(advice: Advice) -> str:
    """Name what was advised on."""
    return one_line(advice.target.name)


def headline(advice: Advice) -> str:
    """Say in one sentence what came out."""
    tried = len(advice.trials) - len(advice.of("untried"))
    held = len(advice.accepted)
    text = f"{held} of {tried} candidates held"
    if advice.best is not None:
        best = advice.best
        together = " + ".join(best.candidates)
        return f"{text}; {together}: {times(best.speed_up)}"
    return text


def together(advice: Advice) -> Best | None:
    """Return the best where it is several candidates; one alone is shown with its code already."""
    best = advice.best
    return best if best is not None and len(best.candidates) > 1 else None


def facts(advice: Advice) -> list[tuple[str, str]]:
    """Return what was measured, on what, and by which rule."""
    what, machine = advice.target, advice.environment.machine
    inputs = ", ".join("×".join(map(str, one.shape)) or one.name for one in what.inputs)
    step = "a training step" if what.training else "inference"
    found = [
        ("target", one_line(what.spec)),
        ("input", one_line(inputs)),
        ("run as", f"{step}, {what.precision} on {what.device}"),
        ("machine", one_line(machine.cpu)),
        ("a call", f"{units.time(advice.latency)}, {units.size(advice.memory)} at its peak"),
        (
            "rule",
            f"surely more than {units.percent(advice.minimum_gain)} faster on fresh ABBA blocks, "
            f"one-sided at {units.percent(1 - advice.alpha, 3)}, Holm over all that were confirmed",
        ),
    ]
    if advice.metric:
        found.append(("metric", one_line(advice.metric)))
    if advice.duration is not None:
        found.append(("took", units.time(advice.duration, 3)))
    return [pair for pair in found if pair[1]]


def times(found: SpeedUp | None) -> str:
    """Return a speed-up: '1.18×'."""
    return "" if found is None else f"{units.significant(found.value)}×"


def interval(found: SpeedUp | None) -> str:
    """Return its interval: '[1.12, 1.25]'."""
    if found is None:
        return ""
    ends = (units.significant(end) for end in (found.interval.low, found.interval.high))
    return f"[{', '.join(ends)}]"


def memory(trial: Trial) -> str:
    """Return the change of the peak: '−48 %'."""
    change = trial.memory_change
    if change is None:
        return ""
    sign = "−" if change < 0 else "+"
    return "±0 %" if abs(change) < 5e-4 else f"{sign}{units.percent(abs(change))}"


def error(check: OutputCheck | None) -> str:
    """Return how far the output is off, relative to its largest value."""
    if check is None or check.max_relative is None:
        return ""
    if check.max_relative == 0:
        return "0"
    return f"{check.max_relative:.1e}".replace("e-0", "e-")


def output(check: OutputCheck | None) -> str:
    """Say all that is known of an output: errors, cosine, agreement, the user's metric."""
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
    return ", ".join(_layer(one) for one in trial.layers[:3])


def _layer(one: LayerGain) -> str:
    path = one_line(one.path) or "the model itself"
    return f"{path} −{units.percent(abs(one.change))} ({units.time(abs(one.seconds), 2)} less)"


def assumed(one: Assumed) -> str:
    """Say an estimated figure and the model behind it."""
    return f"{one.name}: {units.amount(one.value, one.unit, 3)}"


def left_out(trial: Trial) -> str:
    """Say which layers were not changed, and why: 'layer4.fc: error 3.1 % > 1 %'."""
    return "; ".join(map(_left_out, trial.left_out))


def _left_out(layers: LeftOut) -> str:
    check = layers.output
    why = check.reason.removesuffix(".")
    if check.bounded == "metric" and check.metric_before is not None:
        after = "not a number"
        if check.metric_after is not None:
            after = units.significant(check.metric_after, 4)
        why = f"metric {units.significant(check.metric_before, 4)} → {after}"
    elif check.max_relative is not None and check.max_relative > check.bound:
        why = f"error {units.percent(check.max_relative)} > {units.percent(check.bound)}"
    beside = "" if layers.alone else " with the others"
    return one_line(f"{', '.join(layers.paths)}: {why}{beside}")


def details(trial: Trial) -> list[str]:
    """Return what is said below an accepted candidate."""
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
