"""What ABBA blocks say of a candidate: its speed-up, whether to go on, and which ones held."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torchgauge.analyze.holm import holm
from torchgauge.analyze.noise import CONFIDENCE
from torchgauge.analyze.paired import estimate, p_value
from torchgauge.analyze.paired_layers import LayerTest
from torchgauge.imports import imported
from torchgauge.model.advice import LayerGain, SpeedUp
from torchgauge.model.record import Interval

ALPHA = 1 - CONFIDENCE
# What is gained must be worth three lines of code.
MINIMUM_GAIN = 0.01
# A peak is exact, and less than this is not worth a change either.
MINIMUM_MEMORY = 0.05
# Of the user's metric, relative to itself.
METRIC_TOLERANCE = 0.01
SCREENING, CONFIRMATION = 2, 6
FEWEST_CONFIRMING, MOST_CONFIRMING = 4, 12
LAYERS = 5


def speed_up(differences: Sequence[float], before: float, after: float) -> SpeedUp:
    """Return the speed-up from d = ln(candidate ÷ original) of two blocks or more."""
    found = estimate(differences)
    return SpeedUp(
        value=math.exp(-found.mean),
        interval=Interval(low=math.exp(-found.high), high=math.exp(-found.low)),
        differences=tuple(differences),
        before=before,
        after=after,
    )


def promising(screening: SpeedUp) -> bool:
    """Tell whether a screened candidate is worth fresh blocks: it gained as much as is asked."""
    return screening.value > 1 + MINIMUM_GAIN


def gain_p(differences: Sequence[float]) -> float:
    """Return p of the hypothesis that a candidate gains no more than `MINIMUM_GAIN`."""
    return p_value([-d for d in differences], math.log1p(MINIMUM_GAIN))


def confirmed(p: Mapping[str, float]) -> dict[str, bool]:
    """Return which candidates held, by Holm over all that were confirmed.

    Screening chose them on other blocks, so that what it sorted out takes nothing from them.
    """
    return dict(zip(p, holm(list(p.values()), ALPHA), strict=True))


def break_even(one_off: float | None, found: SpeedUp) -> int | None:
    """Return the calls after which a one-off cost is saved; None where nothing is."""
    saved = found.before - found.after
    if one_off is None or saved <= 0:
        return None
    return math.ceil(one_off / saved)


def confirming_blocks(left: float | None, winners: int, each: float) -> int:
    """Return the fresh blocks for each winner: as many as the seconds `left` allow, within bounds.

    A budget that does not allow the fewest is kept by leaving winners out, not by fewer blocks.
    """
    if left is None or not winners or not each:
        return CONFIRMATION
    return max(FEWEST_CONFIRMING, min(MOST_CONFIRMING, int(left / (winners * each))))


def layers_helped(
    blocks: Sequence[Mapping[str, float]], seconds: Sequence[Mapping[str, float]]
) -> tuple[LayerGain, ...]:
    """Return the layers that surely got faster, by what they save, the most first.

    `blocks` hold each layer's d, `seconds` its own seconds in the original. False discoveries are
    counted over all layers (Benjamini–Hochberg at 5 %).
    """
    common = set(blocks[0]).intersection(*blocks[1:]) if len(blocks) > 2 else set()
    if not common:
        return ()
    false_discovery_control = imported("scipy.stats").false_discovery_control

    paths = sorted(common)
    tests = [LayerTest(tuple(block[path] for block in blocks)) for path in paths]
    adjusted = false_discovery_control([test.p for test in tests])
    gains = []
    for path, test, p in zip(paths, tests, adjusted, strict=True):
        own = [one[path] for one in seconds if path in one]
        if p < 0.05 and test.change < 0 and own:
            saved = test.change * math.fsum(own) / len(own)
            gains.append(
                LayerGain(path=path, change=test.change, interval=test.interval(), seconds=saved)
            )
    return tuple(sorted(gains, key=lambda one: one.seconds)[:LAYERS])
