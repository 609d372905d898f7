"""Results derived from several probes: work on the tree, bounds, a training step's phases."""

from __future__ import annotations

import msgspec

from torchgauge.analyze.latency.training_phases import training_time
from torchgauge.analyze.work.bottleneck import bottleneck, contradicted, step_bottleneck
from torchgauge.analyze.work.lower_bound import Fp32, roofline
from torchgauge.analyze.work.tree_costs import layer_times, with_bounds, with_costs
from torchgauge.device.roofs import roofs as machine
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.records.environment import Environment
from torchgauge.records.latency.latency import Latency, TrainingTime
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import Bottleneck, Roofline, Roofs
from torchgauge.targets.placement import Placement
from torchgauge.targets.precisions import name_of
from torchgauge.targets.target import Target


def judged(
    tree: Tree,
    cost: Cost | None,
    latency: Latency | None,
    roofs: Roofs | None,
    environment: Environment,
) -> Tree:
    """Return the tree with its work, and with what bounds each layer where the roofs are known."""
    if cost is None:
        return tree
    # The nodes of a graph's tree have its work already; a compiled library's have none.
    if cost.counted_on not in ("onnx", "executorch", "aotinductor"):
        tree = with_costs(tree, cost)
    rounding = _rounding(environment)
    # Other load may have slowed one of the two alone.
    times = [seconds for seconds in (latency and latency.median, tree.root.time) if seconds]
    if roofs is None or (times and contradicted(cost, min(times), roofs, fp32=rounding)):
        return tree
    return with_bounds(tree, cost, roofs, fp32=rounding)


def _rounding(environment: Environment) -> Fp32:
    return environment.settings.fp32_matmul, environment.settings.fp32_convolution


def bounds(
    placement: Placement,
    environment: Environment,
    cost: Cost | None,
    latency: Latency | None,
    tree: Tree | None,
    roofs: Roofs | None,
    training: TrainingTime | None = None,
) -> tuple[Roofline | None, Bottleneck | None]:
    """Return how near the call comes to the machine's roofs, and what bounds it.

    A training step is timed with its optimizer and counted without: what bounds it is told of its
    passes, and it has no roofline. No roofline under roofs that the call itself shows to be far too
    low.
    """
    if cost is None or latency is None or latency.cold_cache:
        return None, None
    rounding = _rounding(environment)
    if cost.backward:
        if training is None:
            return None, None
        return None, step_bottleneck(cost, latency, training, roofs, fp32=rounding)
    if latency.stages:
        return None, None
    times = {} if tree is None else layer_times(tree, cost)
    near = None
    if roofs is not None and not contradicted(cost, latency.median, roofs, fp32=rounding):
        near = roofline(cost, latency, roofs, layer_times=times, fp32=rounding)
        if near is not None and roofs.source == "measured":
            near = msgspec.structs.replace(near, datasheet=machine.datasheet(placement.device))
    return near, bottleneck(cost, latency, roofs, fp32=rounding)


def phases(
    latency: Latency | None, placement: Placement, options: LatencyOptions
) -> TrainingTime | None:
    """Return how a training step's time divides; None in inference and where it was not timed."""
    if latency is None or options.train is None:
        return None
    return training_time(
        latency,
        optimizer=name_of(options.train.optimizer),
        autocast=placement.precision if placement.method == "autocast" else "",
        scaled=options.train.scaler is not None,
    )


def no_module(target: Target) -> MeasurementWarning:
    """Return the warning that a target is a plain callable."""
    message = f"{target.name} is a plain callable: the parameters that it uses are not known."
    if target.kind == "aotinductor":
        message = (
            f"{target.name} is a compiled library: its parameters are inside, and neither they nor "
            "its work nor its layers are known. The figures of memory are without them."
        )
    return MeasurementWarning(id="not-a-module", message=message, probe="size")


def no_parameters(target: Target, *, estimates: bool = False) -> MeasurementWarning:
    """Return the warning that a program's parameters are not known, nor `estimates` by them."""
    lacking = " Without their size nothing is estimated of other devices." if estimates else ""
    return MeasurementWarning(
        id="parameters-unknown",
        message=f"{target.name} stores constants, and does not mark the parameters among them."
        f"{lacking}",
        probe="size",
        remedy="--etrecord FILE, the record of how it was lowered, has parameters and layers.",
    )


def meta_device() -> MeasurementWarning:
    """Return the warning that a target has no values."""
    return MeasurementWarning(
        id="meta-device",
        message="The model's tensors have no values (on the meta device, or fake): its size "
        "and work are counted, nothing is timed.",
    )
