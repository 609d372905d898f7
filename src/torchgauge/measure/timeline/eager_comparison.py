"""The eager probe: layers of a compiled model run eagerly and compiled, on the same inputs.

A kernel belongs to the layers that Inductor's table of sources names.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import math
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from torchgauge.analyze.statistics.paired import estimate
from torchgauge.analyze.timeline.call_tree import Call, CallTree, place
from torchgauge.analyze.timeline.compared_layers import KernelTime, SideTimes, compared_layers
from torchgauge.analyze.timeline.residual import StampCost, layer_times
from torchgauge.clock import SystemClock
from torchgauge.device.select import open_device
from torchgauge.measure.effort import Effort
from torchgauge.measure.latency.step_times import Phases, length, settled
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.step import Step, prepared
from torchgauge.measure.timeline.compilation import KernelSite, Watch, plain_path
from torchgauge.measure.timeline.layer_times import synchronized_clock
from torchgauge.measure.timeline.stamps import Stamps, calibrated
from torchgauge.measure.timeline.timeline import min_rounds
from torchgauge.measure.work import internals
from torchgauge.records.record import Interval
from torchgauge.records.timeline.compilation import EagerComparison
from torchgauge.signals import restoring
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.placement import Placement
from torchgauge.targets.training.training import Training

MOST_ROUNDS = 24
LONGER = 2  # times as long as the stamped pass
_NOW, _NOTE, _START = "_torchgauge_now", "_torchgauge_note", "_torchgauge_start"


class _Side:
    """Steps of the eager or of the compiled model: bare ones by round, and the calls of stamped."""

    def __init__(self) -> None:
        self.bare: list[list[Phases]] = []
        self.calls: list[list[Call]] = []


def measure(
    placement: Placement, watch: Watch, *, train: Training | bool | None, effort: Effort
) -> EagerComparison | None:
    """Return a step's forward pass eager and compiled; None where the target is not a module.

    Both are run in turns with nothing attached, and with a stamp at each layer and kernel. Where a
    device runs on its own, every reading of the clock waits for it. Raises what the step raises.
    """
    if module_of(placement.model) is None:
        return None
    device = open_device(placement.device)
    now = synchronized_clock(SystemClock(), device)
    with device.current(), prepared(placement, Training.resolve(train)) as step:
        modules = Modules(placement.model)
        stamps = Stamps(placement.model, modules, now, step.threads)
        sites = [site for site in watch.sites() if not site.backward]
        kernels = KernelStamps(sites, modules, now)
        eager, compiled = _Side(), _Side()
        with step.threads.tracking():
            began = now()
            for number in itertools.count(1):
                pairs: list[tuple[_Side, KernelStamps | None]]
                pairs = [(compiled, kernels), (eager, None)]
                for side, its_kernels in pairs if number % 2 else pairs[::-1]:
                    _run(side, step, now, modules, stamps, its_kernels)
                enough = now() - began >= LONGER * effort.stamps * 1e9
                min_number = min_rounds(length(eager.bare[0][0]))
                if number >= min_number and (enough or number >= MOST_ROUNDS):
                    break
        tree = CallTree(modules.table, modules.name)
        return _comparison(eager, compiled, modules, tree, kernels, calibrated(now))


def _run(
    side: _Side,
    step: Step,
    now: Callable[[], int],
    modules: Modules,
    stamps: Stamps,
    kernels: KernelStamps | None,
) -> None:
    """Run bare and stamped steps: with the stamps of kernels where it is the compiled side."""

    def read() -> list[Call]:
        calls = stamps.take_calls()
        modules.forget_gone()
        return calls if kernels is None else calls + kernels.take_calls()

    with contextlib.ExitStack() as stack:
        if kernels is None:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        side.bare.append([phases for phases, _ in settled(step, now, lambda: None)])
        stack.enter_context(stamps.watching())
        if kernels is not None:
            stack.enter_context(kernels.watching())
        side.calls += [calls for _, calls in settled(step, now, read)]


def _comparison(
    eager: _Side,
    compiled: _Side,
    modules: Modules,
    tree: CallTree,
    kernels: KernelStamps,
    cost: StampCost,
) -> EagerComparison:
    eager_own, _ = _own_times(eager.calls, tree, {}, cost)
    compiled_own, kernel_times = _own_times(compiled.calls, tree, kernels.sites, cost)
    regions = {
        plain_path(path)
        for module, named in zip(modules.by_number, modules.table, strict=True)
        if module is not None and internals.is_compiled(module)
        for path in named.paths
    }
    callers = _callers_of_kernels(tree, kernels.sites)
    forwards = [_forward(side) for side in (eager, compiled)]
    ratios = [math.log(a / b) for a, b in zip(*forwards, strict=True)]
    interval: Interval | None = None
    if len(ratios) > 1:
        estimated = estimate(ratios)
        interval = Interval(low=math.exp(estimated.low), high=math.exp(estimated.high))
    phases = [_phases(side) for side in (eager, compiled)]
    forward_times = [_phases(side)["forward"] for side in (eager, compiled)]
    return EagerComparison(
        eager=forward_times[0],
        compiled=forward_times[1],
        speed_up=math.exp(statistics.fmean(ratios)),
        interval=interval,
        rounds=len(ratios),
        rows=compared_layers(
            SideTimes(forward_times[0], eager_own),
            SideTimes(forward_times[1], compiled_own),
            [
                KernelTime(kernels.sites[number].call.name, kernels.sites[number].layers, time)
                for number, time in kernel_times.items()
            ],
            regions | callers,
            separated=regions <= callers,
        ),
        phases={
            name: (phases[0][name], phases[1][name])
            for name in phases[0]
            if name != "forward" and name in phases[1]
        },
    )


def _forward(side: _Side) -> list[float]:
    """Return the seconds of the bare forward pass by round."""
    return [statistics.median(step["forward"] for step in steps) * 1e-9 for steps in side.bare]


def _phases(side: _Side) -> dict[str, float]:
    steps = [step for steps in side.bare for step in steps]
    return {
        name: statistics.median(step.get(name, 0) for step in steps) * 1e-9 for name in steps[0]
    }


def _own_times(
    steps: Sequence[Sequence[Call]], tree: CallTree, sites: Mapping[int, Any], cost: StampCost
) -> tuple[dict[str, float], dict[int, float]]:
    """Return the median seconds of each layer by its path, and of each kernel by its number."""
    for calls in steps:
        place(calls, tree)
    free = {number: 0.0 for number, layer in enumerate(tree.layers) if layer.module in sites}
    times = layer_times(steps, tree, StampCost(free, cost.median, cost.inside))
    layers: dict[str, list[float]] = {}
    kernels: dict[int, list[float]] = {}
    for index, own in enumerate(times.steps):
        for number, nanoseconds in own.items():
            layer = tree.layers[number]
            series = (
                kernels.setdefault(layer.module, [0.0] * len(steps))
                if layer.module in sites
                else layers.setdefault(plain_path(layer.path), [0.0] * len(steps))
            )
            series[index] += nanoseconds * 1e-9
    return (
        {path: max(0.0, statistics.median(series)) for path, series in layers.items()},
        {number: statistics.median(series) for number, series in kernels.items()},
    )


def _callers_of_kernels(tree: CallTree, sites: Mapping[int, Any]) -> set[str]:
    """Return the layers whose calls run kernels."""
    return {
        plain_path(tree.layers[layer.parent].path) for layer in tree.layers if layer.module in sites
    }


class KernelStamps:
    """Notes the kernels that generated code calls while `watching`.

    The functions of that code run with two more statements around each kernel, which takes about
    0.2 µs; nothing is compiled for it. Each call has a number in `modules`, as a layer would have:
    `sites` has them by it.
    """

    def __init__(
        self, sites: Sequence[KernelSite], modules: Modules, now: Callable[[], int]
    ) -> None:
        self.sites: dict[int, KernelSite] = {}
        self._now = now
        self._notes: list[tuple[int, int, int, int]] = []
        lines: dict[int, dict[int, int]] = {}
        self._codes = {id(site.code): site.code for site in sites}
        for site in sites:
            number = modules.add(f"{site.call.name}:{len(self.sites)}", "kernel")
            self.sites[number] = site
            lines.setdefault(id(site.code), {})[site.call.line] = number
        self._functions = [
            stamped for key, numbers in lines.items()
            for stamped in _stamped(self._codes[key], numbers)
        ]  # fmt: skip

    @restoring
    def watching(self) -> Iterator[None]:
        """Note kernels until the block ends."""
        originals = [(function, function.__code__) for function, _ in self._functions]
        for code in self._codes.values():
            vars(code).update({_NOW: self._now, _NOTE: self._note})
        try:
            for function, stamped in self._functions:
                function.__code__ = stamped
            yield
        finally:
            for function, original in originals:
                function.__code__ = original
            for code in self._codes.values():
                del vars(code)[_NOW], vars(code)[_NOTE]

    def take_calls(self) -> list[Call]:
        """Return the kernels that have run since the last time."""
        notes, self._notes[:] = self._notes[:], []
        return [Call(number, thread, start, end) for number, thread, start, end in notes]

    def _note(self, number: int, start: int, end: int) -> None:
        self._notes.append((number, threading.get_ident(), start, end))


def _stamped(
    code: ModuleType, numbers: Mapping[int, int]
) -> Iterator[tuple[FunctionType, CodeType]]:
    """Yield the functions of a module that call kernels, and their code with stamps."""
    file = code.__file__ or ""
    tree = _Stamping(dict(numbers)).visit(ast.parse(Path(file).read_text()))
    compiled = compile(ast.fix_missing_locations(tree), file, "exec")
    stamped = {(inner.co_name, inner.co_firstlineno): inner for inner in _inner_codes(compiled)}
    for function in _functions(code):
        key = (function.__code__.co_name, function.__code__.co_firstlineno)
        if key in stamped and _NOTE in stamped[key].co_names:
            yield function, stamped[key]


def _functions(code: ModuleType) -> Iterator[FunctionType]:
    classes = [value for value in vars(code).values() if inspect.isclass(value)]
    for owner in (code, *classes):
        if owner is code or owner.__module__ == code.__name__:
            for value in vars(owner).values():
                if isinstance(value, FunctionType) and value.__code__.co_filename == code.__file__:
                    yield value


def _inner_codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inner_codes(constant)


class _Stamping(ast.NodeTransformer):
    """Puts a reading of the clock before each numbered line, and a note behind it."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self._numbers = numbers

    def generic_visit(self, node: ast.AST) -> Any:
        node = super().generic_visit(node)
        if not isinstance(node, ast.Expr | ast.Assign):
            return node
        number = self._numbers.pop(node.lineno, None)
        if number is None:
            return node
        source = f"{_START} = {_NOW}()\n{_NOTE}({number}, {_START}, {_NOW}())"
        begin, end = ast.parse(source).body
        for statement in (begin, end):
            for part in ast.walk(statement):
                if hasattr(part, "lineno"):
                    ast.copy_location(part, node)
        return [begin, node, end]
