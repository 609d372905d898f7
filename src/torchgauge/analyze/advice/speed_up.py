"""The speed-up of candidates from ABBA blocks: screening, confirmation, layers helped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torchgauge.analyze.latency.noise import CONFIDENCE
from torchgauge.analyze.statistics.paired import BlockTest, FourLogs, estimate, holm, p_value
from torchgauge.imports import imported
from torchgauge.records.advice import CpuSpeedUp, LayerGain, Outcome, SpeedUp
from torchgauge.records.record import Interval

ALPHA = 1 - CONFIDENCE
# The relative gain that is worth three lines of code.
MINIMUM_GAIN = 0.01
# The relative saving of peak memory that is worth a change; peaks are exact.
MINIMUM_MEMORY = 0.05
# Of the user's metric, relative to itself.
METRIC_TOLERANCE = 0.01
SCREENING, CONFIRMATION = 2, 6
FEWEST_CONFIRMING, MOST_CONFIRMING = 4, 12
LAYERS = 5


def speed_up(
    differences: Sequence[float],
    before: float,
    after: float,
    cpu: Sequence[float] = (),
    core_share: float | None = None,
) -> SpeedUp:
    """Return the speed-up from d = ln(candidate ÷ original) of two blocks or more.

    `cpu` are the blocks' d of CPU time, `core_share` as in the record.
    """
    value, interval = _gain(differences)
    by_cpu = None
    if cpu:
        cpu_value, cpu_interval = _gain(cpu)
        by_cpu = CpuSpeedUp(value=cpu_value, interval=cpu_interval, core_share=core_share)
    return SpeedUp(
        value=value,
        interval=interval,
        differences=tuple(differences),
        before=before,
        after=after,
        cpu=by_cpu,
    )


def _gain(differences: Sequence[float]) -> tuple[float, Interval]:
    mean, low, high, *_ = estimate(differences)
    return math.exp(-mean), Interval(low=math.exp(-high), high=math.exp(-low))


def promising(screening: SpeedUp) -> bool:
    """Tell whether a screened candidate is worth fresh blocks: it gained as much as is asked.

    On a busy machine CPU time may show what wall time hides.
    """
    values = [screening.value]
    if screening.cpu and screening.cpu.busy:
        values.append(screening.cpu.value)
    return max(values) > 1 + MINIMUM_GAIN


def outcome_of(gain: SpeedUp, *, confirmed: bool) -> Outcome:
    """Return the outcome by the intervals, of CPU time too where the machine was busy.

    Where they hold both a gain and none, or contradict each other, nothing is decided. `confirmed`:
    the blocks are fresh, and p is small enough beside that of others.
    """
    if all(interval.high <= 1 + MINIMUM_GAIN for interval in gain.intervals):
        return "rejected"
    gains = all(interval.low > 1 + MINIMUM_GAIN for interval in gain.intervals)
    return "accepted" if confirmed and gains and gain.clocks_agree else "undecided"


def gain_p(differences: Sequence[float]) -> float:
    """Return p of the hypothesis that a candidate gains no more than `MINIMUM_GAIN`."""
    return p_value([-d for d in differences], math.log1p(MINIMUM_GAIN))


def confirmed(p: Mapping[str, float]) -> dict[str, bool]:
    """Return which candidates held, by Holm over all that were confirmed.

    Screening chose them on other blocks, so that what it sorted out takes nothing from them.
    """
    return dict(zip(p, holm(list(p.values()), ALPHA), strict=True))


def break_even(one_off: float | None, measured: SpeedUp) -> int | None:
    """Return the calls after which a one-off cost is saved; None where nothing is."""
    saved = measured.before - measured.after
    if one_off is None or saved <= 0:
        return None
    return math.ceil(one_off / saved)


def confirming_blocks(remaining_seconds: float | None, winners: int, block_seconds: float) -> int:
    """Return the fresh blocks for each winner: as many as the remaining time allows, within bounds.

    A budget that does not allow the fewest is kept by leaving winners out, not by fewer blocks.
    """
    if remaining_seconds is None or not winners or not block_seconds:
        return CONFIRMATION
    return max(
        FEWEST_CONFIRMING, min(MOST_CONFIRMING, int(remaining_seconds / (winners * block_seconds)))
    )


def layers_helped(
    blocks: Sequence[Mapping[str, FourLogs]], seconds: Sequence[Mapping[str, float]]
) -> tuple[LayerGain, ...]:
    """Return the layers that got significantly faster, by what they save, the most first.

    `blocks` hold each layer's logs of the four processes, `seconds` its own seconds in the
    original. False discoveries are counted over all layers (Benjamini–Hochberg at 5 %).
    """
    common = set(blocks[0]).intersection(*blocks[1:]) if len(blocks) > 2 else set()
    if not common:
        return ()
    false_discovery_control = imported("scipy.stats").false_discovery_control

    paths = sorted(common)
    tests = [BlockTest([block[path] for block in blocks]) for path in paths]
    adjusted = false_discovery_control([test.p for test in tests])
    gains = []
    for path, test, p in zip(paths, tests, adjusted, strict=True):
        own = [layer_seconds[path] for layer_seconds in seconds if path in layer_seconds]
        interval = test.interval()
        if p < 0.05 and test.change < 0 and own and interval is not None:
            saved = test.change * math.fsum(own) / len(own)
            gains.append(LayerGain(path=path, change=test.change, interval=interval, seconds=saved))
    return tuple(sorted(gains, key=lambda gain: gain.seconds)[:LAYERS])
