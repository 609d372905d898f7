"""How far a tree's sum is from the step as it runs undisturbed, and from the headline latency."""

from __future__ import annotations

import msgspec

from torchgauge import units
from torchgauge.model.latency import Latency
from torchgauge.model.record import Interval, MeasurementWarning
from torchgauge.model.tree import Tree

# Between runs of one model on a quiet machine it is 1–3 %.
TOLERATED = 0.1
# A tree is no nearer to its own bare steps than some 3 %.
TOLERATED_HEADLINE = 0.05


def residual_warnings(residual: float | None, bare: float | None) -> tuple[MeasurementWarning, ...]:
    """Return what is to be said where the parts' sum is far from the bare step (both in s)."""
    if residual is None or not bare or abs(residual) <= TOLERATED * bare:
        return ()
    side = "above" if residual > 0 else "below"
    return (
        MeasurementWarning(
            id="tree-residual",
            message=f"The tree's times add up to {units.percent(abs(residual) / bare)} {side} the "
            "step without instruments.",
            probe="timeline",
            cause="Threads of the model worked side by side, something else ran on the machine "
            "meanwhile, or the instruments cost that much.",
            remedy="Read the tree's shares, not its times; repeat it on a quiet machine.",
        ),
    )


def beside_headline(tree: Tree, latency: Latency | None) -> Tree:
    """Return the tree with its sum as a ratio to the headline latency, and a warning if it is off.

    Unknown where latency was measured of other calls (cold caches, stages), and where the time is
    a device's: the host's part of a step is then no latency.
    """
    total = tree.root.host_time
    if latency is None or latency.cold_cache or latency.stages or not latency.median:
        return tree
    if not total or tree.root.device_time is not None:
        return tree
    return msgspec.structs.replace(
        tree,
        headline_ratio=total / latency.median,
        warnings=(*tree.warnings, *_headline_warnings(tree, total, latency)),
    )


def _headline_warnings(tree: Tree, total: float, latency: Latency) -> list[MeasurementWarning]:
    ratio = total / latency.median
    if abs(ratio - 1) <= TOLERATED_HEADLINE or _overlap(_of_tree(tree, total), _of(latency)):
        return []
    bare = next((one.bare for one in tree.passes if one.bare), None)
    beside = "" if bare is None else f", calls without instruments {bare / latency.median:.2f}×"
    return [
        MeasurementWarning(
            id="tree-headline",
            message=f"The tree is of calls that took {ratio:.2f}× the headline latency: its times "
            f"add up to {units.time(total, 3)}, the headline is {units.time(latency.median, 3)}.",
            probe="timeline",
            cause=f"While the tree was measured a step took that long{beside}: the machine or the "
            "process ran at another pace than during the latency measurement.",
            remedy=f"Read the tree's shares, or divide its times by {ratio:.2f}; repeat it on a "
            "quiet machine.",
        )
    ]


def _of(latency: Latency) -> Interval:
    """Return what is known of the headline: its interval, or the range of processes' medians."""
    medians = latency.process_medians or (latency.median,)
    return latency.interval or Interval(low=min(medians), high=max(medians))


def _of_tree(tree: Tree, total: float) -> Interval:
    """Return the interval of the bare steps beside the tree's, brought to the tree's sum."""
    for one in tree.passes:
        if one.bare and one.bare_interval is not None:
            scale = total / one.bare
            return Interval(low=one.bare_interval.low * scale, high=one.bare_interval.high * scale)
    return Interval(low=total, high=total)


def _overlap(one: Interval, other: Interval) -> bool:
    return one.low <= other.high and other.low <= one.high
