"""Check that a change keeps a model's output, and choose the layers with which it does."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch import nn

from torchgauge.device.select import open_device
from torchgauge.errors import InputError, MeasurementError, TorchgaugeError, text_of
from torchgauge.forks import translating
from torchgauge.measure.advice.outputs import compared, host_copies
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.memory import memory
from torchgauge.measure.processes.child_work import Sent
from torchgauge.measure.step import prepared
from torchgauge.measure.work.internals import draw_as_eager
from torchgauge.records.advice import LeftOut, OutputCheck
from torchgauge.targets import members
from torchgauge.targets.builds.source import Source
from torchgauge.targets.changed_target import Changed, changed, changed_training
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.placement import Placement
from torchgauge.targets.runtimes.runtime_model import RuntimeModel

# A training step shows in the next one's outputs what its optimizer did.
STEPS = 3
SEED = 0
# Where a side computes in low precision; as `advise` allows for a change to it.
_TOLERANCES = {"fp16": 1e-2, "bf16": 5e-2}
_ONE_NUMBER = "It is called with the model's outputs, and must return one finite number."
MOST_GROUPS = 12
COPY = "import copy\nmodel = copy.deepcopy(model)"


class CheckResult(msgspec.Struct, frozen=True):
    """The result of a check: peak bytes, and seconds of the first call beyond a later one."""

    output: OutputCheck
    memory: int | None = None
    one_off: float | None = None


@dataclasses.dataclass(frozen=True)
class CheckSource(Changed):
    """A changed source with how its output is judged.

    `on_optimizer` is code for the optimizer of a training step. `metric(outputs)` is the user's.
    `other` is a model of its own, in place of a change: it gets the inputs of this one.
    """

    on_optimizer: tuple[str, ...] = ()
    tolerance: float = 1e-3
    metric: Callable[[Any], float] | None = None
    times: int = 1
    other: Source | None = None


def check(source: CheckSource, placement: Placement, options: LatencyOptions) -> CheckResult:
    """Compare outputs before and after the change, in this process, which it leaves changed.

    `placement` is the original. Memory is measured only of an output that passed. Raises what
    running the original raises; MeasurementError `change-raised`, `metric-raised`, and what the
    changed model raises.
    """
    before, _ = outputs_of(source, placement, options)
    if source.other is not None:
        other = _other_model(placement, source.other)
        after, _ = outputs_of(source, other, options)
        allowed = [_TOLERANCES.get(side.precision, 0.0) for side in (placement, other)]
        source = dataclasses.replace(source, tolerance=max(source.tolerance, *allowed))
        return CheckResult(_leading(source, before, after))
    if before.drew and any("torch.compile" in code for code in source.code):
        draw_as_eager()
    began = time.perf_counter()
    changed_placement = changed(placement, source.code)
    train = changed_training(options.train, source.on_optimizer)
    apply = time.perf_counter() - began
    changed_options = dataclasses.replace(options, train=train)
    after, seconds = outputs_of(source, changed_placement, changed_options)
    output = judged(source, before, after)
    if not output.passed:
        return CheckResult(output)
    return CheckResult(
        output,
        _peak(changed_placement, changed_options),
        max(0.0, apply + seconds[0] - min(seconds[1:])),
    )


def check_sent(sent: Sent[CheckSource]) -> CheckResult:
    """Do `check` as the work of a process."""
    return check(sent.source, sent.original(), sent.options)


def _other_model(placement: Placement, other: Source) -> Placement:
    """Return another model with these inputs, of an ONNX file by their order or its names.

    They get the types that the file declares.
    """
    opened = other.open()
    inputs, model = placement.inputs, opened.model
    if isinstance(model, RuntimeModel) and not set(inputs.kwargs) <= set(model.input_names):
        inputs = Inputs(args=tuple(tensor for _, tensor in inputs.tensors()))
    graph = opened.target.graph
    if isinstance(model, RuntimeModel) and graph is not None:
        kinds = {name: getattr(torch, kind.dtype, None) for name, kind in graph.values.items()}
        named = itertools.zip_longest(
            model.input_names[: len(inputs.args)], inputs.args, fillvalue=""
        )
        inputs = Inputs(
            args=tuple(_as_type(value, kinds.get(name)) for name, value in named),
            kwargs={
                name: _as_type(value, kinds.get(name)) for name, value in inputs.kwargs.items()
            },
        )
    return dataclasses.replace(opened, inputs=inputs)


def _as_type(value: Any, dtype: torch.dtype | None) -> Any:
    """Return a tensor of floats as other floats, one of whole numbers as others that hold them."""
    if not isinstance(value, torch.Tensor) or dtype is None or value.dtype == dtype:
        return value
    result = value.to(dtype)
    if value.is_floating_point() and dtype.is_floating_point:
        return result
    are_integers = not (value.is_floating_point() or dtype.is_floating_point or dtype == torch.bool)
    return result if are_integers and torch.equal(result.to(value.dtype), value) else value


def _leading(source: CheckSource, before: OutputSnapshot, after: OutputSnapshot) -> OutputCheck:
    """Compare the outputs that both have: an exporter may leave out the last ones."""
    count = min(len(before.tensors), len(after.tensors))
    sides = (side._replace(tensors=side.tensors[:count]) for side in (before, after))
    return judged(source, *sides)


class OutputSnapshot(NamedTuple):
    """Copies of the outputs' tensors, the user's metric, and whether random numbers were drawn."""

    tensors: list[torch.Tensor]
    metric: float | None
    drew: bool


def outputs_of(
    source: CheckSource, placement: Placement, options: LatencyOptions
) -> tuple[OutputSnapshot, list[float]]:
    """Return the outputs of the last of some steps, and the seconds of each."""
    device, seconds = open_device(placement.device), []
    torch.manual_seed(SEED)  # what draws at random draws the same on both sides
    with device.current(), prepared(placement, options.train) as step:
        outputs, state = None, _random_state(placement.device)
        for _ in range(STEPS):
            began = time.perf_counter()
            outputs = step()
            device.synchronize()
            seconds.append(time.perf_counter() - began)
        # Copied in here: it may be a buffer or an input, which are about to be put back.
        metric = None if source.metric is None else _metric(source.metric, outputs)
        drew = not torch.equal(state, _random_state(placement.device))
        return OutputSnapshot(host_copies(outputs), metric, drew), seconds


def _random_state(device: str) -> torch.Tensor:
    return torch.cuda.get_rng_state(device) if device.startswith("cuda") else torch.get_rng_state()


def judged(source: CheckSource, before: OutputSnapshot, after: OutputSnapshot) -> OutputCheck:
    """Compare outputs as the source says; raises MeasurementError `metric-raised`."""
    metrics = None
    if before.metric is not None and after.metric is not None:
        if not math.isfinite(before.metric):
            raise MeasurementError(
                f"Your metric gives {before.metric} for the original's outputs.",
                id="metric-raised",
                remedy=_ONE_NUMBER,
            )
        metrics = (before.metric, after.metric)
    return compared(
        before.tensors, after.tensors, source.tolerance, metrics=metrics, times=source.times
    )


def _metric(metric: Callable[[Any], float], outputs: Any) -> float:
    with translating(_metric_raised), torch.no_grad():
        return float(metric(outputs))


def _metric_raised(error: BaseException) -> MeasurementError:
    return MeasurementError(
        f"Your metric raised {type(error).__name__}.",
        id="metric-raised",
        cause=text_of(error),
        remedy=_ONE_NUMBER,
    )


def _peak(placement: Placement, options: LatencyOptions) -> int | None:
    """Return the peak of a call, None where it cannot be recorded."""
    try:
        return memory.measure(placement, train=options.train).peak
    except (MeasurementError, InputError) as error:
        if error.id == "out-of-memory":
            raise
        return None
    except TorchgaugeError:
        return None


def choose_sent(sent: Sent[LayerChoiceSource]) -> LayerChoice:
    """Do `chosen` as the work of a process."""
    return chosen(sent.source, sent.original(), sent.options)


class LayerGroup(NamedTuple):
    """Layers that are changed together: module paths that they are under, bytes of parameters."""

    paths: tuple[str, ...]
    size: int


class LayerChoice(msgspec.Struct, frozen=True):
    """Layers that a change keeps the output with.

    Attributes:
        paths: Module paths of the layers, or of modules around them; empty where none holds.
        share: Their share of the parameters' bytes of all layers of these kinds.
        left_out: The other layers, and what the output was with them changed.
    """

    paths: tuple[str, ...]
    share: float
    left_out: tuple[LeftOut, ...] = ()


@dataclasses.dataclass(frozen=True)
class LayerChoiceSource(CheckSource):
    """A source with a change to layers of some kinds, whose `lines` name the layers."""

    kinds: tuple[str, ...] = ()
    lines: Callable[[Sequence[str]], str] = "".join


def chosen(source: LayerChoiceSource, placement: Placement, options: LatencyOptions) -> LayerChoice:
    """Choose layers by their outputs alone: each group by itself, then the largest ones together.

    Raises what running the original raises.
    """
    before, _ = outputs_of(source, placement, options)

    def check(paths: tuple[str, ...]) -> OutputCheck:
        return _check(source, placement, options, before, paths)

    model = module_of(placement.model)
    groups = [] if model is None else layer_groups(model, source.kinds)
    left_out: list[LeftOut] = []
    holding: list[LayerGroup] = []
    for group in groups:
        output = check(group.paths)
        if output.passed:
            holding.append(group)
        else:
            left_out.append(LeftOut(paths=group.paths, output=output, tested_alone=True))
    selected: list[LayerGroup] = []
    for group in sorted(holding, key=lambda group: -group.size):
        joint_paths = _paths([*selected, group])
        joint_output = check(joint_paths) if selected else None
        if joint_output is None or joint_output.passed:
            selected.append(group)
        else:
            left_out.append(LeftOut(paths=group.paths, output=joint_output, tested_alone=False))
    size = sum(group.size for group in groups)
    share = sum(group.size for group in selected) / size if size else 0.0
    ordered = [group for group in groups if group in selected]
    return LayerChoice(_paths(ordered), share, tuple(left_out))


def _paths(groups: Sequence[LayerGroup]) -> tuple[str, ...]:
    return tuple(path for group in groups for path in group.paths)


def _check(
    source: LayerChoiceSource,
    placement: Placement,
    options: LatencyOptions,
    before: OutputSnapshot,
    paths: tuple[str, ...],
) -> OutputCheck:
    """Compare the output of a copy with these layers changed; what it raises does not pass."""
    try:
        after, _ = outputs_of(source, changed(placement, (COPY, source.lines(paths))), options)
        return judged(source, before, after)
    except TorchgaugeError as error:
        return OutputCheck(
            passed=False, bound=source.tolerance, reason=error.cause or error.message
        )


def layer_groups(model: nn.Module, kinds: Sequence[str]) -> list[LayerGroup]:
    """Group layers of some kinds by the module around them, in the model's order.

    At most `MOST_GROUPS`: of the depths of module paths the first that tells as many apart is
    taken, then the smallest neighbours are joined.
    """
    classes = {getattr(nn, kind) for kind in kinds}
    sizes = {
        path: sum(tensor.nbytes for tensor in members.parameters(layer))
        for path, layer in model.named_modules()
        if type(layer) in classes
    }
    groups: list[LayerGroup] = []
    for depth in range(1, 1 + max((path.count(".") + 1 for path in sizes), default=0)):
        groups = _at_depth(sizes, depth)
        if len(groups) >= MOST_GROUPS:
            break
    while len(groups) > MOST_GROUPS:
        joined = [
            LayerGroup(a.paths + b.paths, a.size + b.size) for a, b in itertools.pairwise(groups)
        ]
        smallest = min(range(len(joined)), key=lambda number: joined[number].size)
        groups[smallest : smallest + 2] = [joined[smallest]]
    return groups


def _at_depth(sizes: dict[str, int], depth: int) -> list[LayerGroup]:
    by_path: dict[str, int] = {}
    for path, size in sizes.items():
        block = ".".join(path.split(".")[:depth])
        by_path[block] = by_path.get(block, 0) + size
    return [LayerGroup((path,), size) for path, size in by_path.items()]
