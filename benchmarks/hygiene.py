"""Does a probe leave anything changed? Real models × probes, on success and on an exception.

The observer (hygiene_observer.py) shares no code with torchgauge. An exception is raised inside the
model's forward at about ten operators from the first to the last, in the first call of a probe and
in later ones. Prints what was changed, and the numbers of models, runs and checks.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torchgauge as tg
from hygiene_models import Candidate, candidates
from hygiene_observer import differences, snapshot
from torchgauge.errors import TorchgaugeError
from torchgauge.measure.effort import QUICK
from torchgauge.measure.machine import system
from torchgauge.measure.step import prepared
from torchgauge.measure.timeline import timeline
from torchgauge.measure.timeline import timeline as stamped_steps
from torchgauge.targets.builds.source import Source
from torchgauge.targets.target import Target

FEW_STEPS = dataclasses.replace(QUICK, stamped_steps=1, recorded_steps=1)
FAMILIES = ("written", "torchvision", "timm", "hf")
POINTS = 10
FAULTY = 20
TRAINED = 20
LARGEST_FAULTY = 3_500_000  # parameters


class PlantedError(RuntimeError):
    """The exception that is thrown into a forward."""


class Fault(TorchDispatchMode):
    """Counts operators, and raises at the k-th of call number `call`."""

    def __init__(self) -> None:
        super().__init__()
        self.operator = self.call = -1
        self.calls = self.operators = self.raised = 0

    def arm(self, operator: int, call: int) -> None:
        """Raise once, at this operator of this call from now on."""
        self.operator, self.call, self.calls, self.raised = operator, call, 0, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.operators += 1
        if self.calls - 1 == self.call and self.operators - 1 == self.operator:
            self.raised += 1
            raise PlantedError
        return func(*args, **(kwargs or {}))


def with_fault(model: torch.nn.Module) -> Fault:
    """Give the model a forward that a fault can be planted in; it is part of the model from now."""
    fault, forward = Fault(), model.forward

    def faulty(*args: Any, **kwargs: Any) -> Any:
        fault.calls += 1
        fault.operators = 0
        if fault.calls - 1 != fault.call:
            return forward(*args, **kwargs)
        with fault:
            return forward(*args, **kwargs)

    model.forward = faulty  # type: ignore[method-assign]
    return fault


def size(target: Target) -> None:
    """Run the size probe."""
    tg.measure_size(target.model)


def latency(target: Target) -> None:
    """Run the latency probe for a warm-up call and two more."""
    tg.measure_latency(target.model, target.inputs, warmup=1, iterations=2, progress=False)


def system_use(target: Target) -> None:
    """Run the system probe for 0.05 s."""
    placement = Source.of_object(target.model, target.inputs).open()
    with prepared(placement) as step:
        system.measure(step, duration=0.05, interval=0.01)


def memory(target: Target) -> None:
    """Run the memory probe."""
    tg.measure_memory(target.model, target.inputs)


def where_time_goes(target: Target) -> None:
    """Run the timeline probe: stamps, a recording, a recording of memory; few steps of each."""
    placement = Source.of_object(target.model, target.inputs).open()
    with few_rounds():
        timeline.measure(placement, effort=FEW_STEPS)


@contextlib.contextmanager
def few_rounds() -> Iterator[None]:
    """Have the timeline probe stamp one step of each kind."""
    kept, stamped_steps.MIN_ROUNDS = stamped_steps.MIN_ROUNDS, 1
    try:
        yield
    finally:
        stamped_steps.MIN_ROUNDS = kept


def cost(target: Target) -> None:
    """Count the forward."""
    tg.count_cost(target.model, target.inputs)


def both_costs(target: Target) -> None:
    """Count forward and backward."""
    tg.count_cost(target.model, target.inputs, backward=True)


def _loss(outputs: Any, _: Any) -> torch.Tensor:
    leaves = torch.utils._pytree.tree_leaves(dict(outputs) if hasattr(outputs, "keys") else outputs)
    floats = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    return torch.stack([x.float().square().mean() for x in floats]).sum()


def _failing_loss(outputs: Any, inputs: Any) -> torch.Tensor:
    loss = _loss(outputs, inputs)

    def fail(_: torch.Tensor) -> torch.Tensor:
        raise PlantedError

    loss.register_hook(fail)  # in the backward pass
    return loss


class FailingOptimizer(torch.optim.SGD):
    """Takes its step and then raises."""

    def step(self, closure: Any = None) -> Any:
        """Raise after the parameters have changed."""
        super().step(closure)
        raise PlantedError


def training(
    loss: Callable[[Any, Any], torch.Tensor] = _loss,
    optimizer: type[torch.optim.SGD] = torch.optim.SGD,
) -> Callable[[Target], None]:
    """Return the memory probe of a training step."""
    how = tg.Training(
        loss=loss, optimizer=lambda parameters: optimizer(parameters, lr=0.1, momentum=0.9)
    )
    return lambda target: tg.measure_memory(target.model, target.inputs, train=how) and None


def training_timeline(loss: Callable[[Any, Any], torch.Tensor] = _loss) -> Callable[[Target], None]:
    """Return the timeline probe of a training step."""
    how = tg.Training(loss=loss, optimizer=lambda parameters: torch.optim.Adam(parameters))

    def run(target: Target) -> None:
        placement = Source.of_object(target.model, target.inputs, training=True).open()
        with few_rounds():
            timeline.measure(placement, train=how, effort=FEW_STEPS)

    return run


PROBES: dict[str, Callable[[Target], None]] = {
    "size": size,
    "latency": latency,
    "system": system_use,
    "memory": memory,
    "cost": cost,
    "timeline": where_time_goes,
}
TRAINING: dict[str, Callable[[Target], None]] = {
    "cost of forward and backward": both_costs,
    "training memory": training(),
    "training timeline": training_timeline(),
    "training timeline, backward raises": training_timeline(loss=_failing_loss),
    "training memory, backward raises": training(loss=_failing_loss),
    "training memory, optimizer raises": training(optimizer=FailingOptimizer),
}


@dataclasses.dataclass
class Tally:
    """What was run and found."""

    models: Counter[str] = dataclasses.field(default_factory=Counter)
    runs: Counter[str] = dataclasses.field(default_factory=Counter)
    refused: list[str] = dataclasses.field(default_factory=list)
    changed: list[str] = dataclasses.field(default_factory=list)
    unreached: int = 0
    checks: int = 0

    def check(self, what: str, probe: str, target: Target, run: Callable[[Target], None]) -> bool:
        """Compare everything before and after; return whether the probe raised."""
        inputs = [tensor for _, tensor in target.inputs.tensors()]
        before = snapshot(target.model, inputs)
        raised = None
        try:
            run(target)
        except TorchgaugeError as error:
            raised = error
        found = differences(before, after := snapshot(target.model, inputs))
        self.checks += len(before)
        self.runs[probe] += 1
        for name in found:
            self.changed.append(f"{what}, {probe}: {name}")
            if len(self.changed) < 10:
                print(self.changed[-1], str(before.get(name))[:80], str(after.get(name))[:80])
        if raised is not None and not isinstance(raised.__cause__, PlantedError):
            self.refused.append(f"{what}, {probe}: {raised.message} {raised.cause}"[:200])
        return raised is not None


def sweep(models: Iterator[Candidate], tally: Tally, *, faults: int, trained: int) -> None:
    """Run every probe on every model; training and faults on the first small ones of a family."""
    left = Counter(dict.fromkeys(FAMILIES, faults // len(FAMILIES)))
    to_train = Counter(dict.fromkeys(FAMILIES, trained // len(FAMILIES)))
    for candidate in models:
        try:
            target = candidate.make()
            assert isinstance(target.model, torch.nn.Module)
            _mix_flags(target.model)
            _warm(target)
        except (RuntimeError, ValueError, TorchgaugeError) as error:
            tally.refused.append(f"{candidate.name} does not run: {error}"[:200])
            continue
        tally.models[candidate.family] += 1
        for probe, run in PROBES.items():
            tally.check(candidate.name, probe, target, run)
        small = sum(p.numel() for p in target.model.parameters()) < LARGEST_FAULTY
        if small and to_train[candidate.family] > 0 and _trainable(target):
            to_train[candidate.family] -= 1
            tally.models["trained"] += 1
            for probe, run in TRAINING.items():
                raised = tally.check(candidate.name, probe, target, run)
                if raised is not probe.endswith("raises"):
                    tally.refused.append(f"{candidate.name}, {probe}: raised is {raised}")
        if small and left[candidate.family] > 0:
            left[candidate.family] -= 1
            tally.models["with faults"] += 1
            plant(candidate.name, target, tally)


def plant(name: str, target: Target, tally: Tally) -> None:
    """Raise at about POINTS operators of the forward, in each probe that runs it."""
    fault = with_fault(target.model)  # type: ignore[arg-type]
    fault.arm(-1, 0)
    with _evaluating(target.model):
        target.model(*target.inputs.args, **target.inputs.kwargs)
    operators = fault.operators
    points = sorted({round(i * (operators - 1) / (POINTS - 1)) for i in range(POINTS)})
    for index, point in enumerate(points):
        for probe in ("latency", "system", "memory", "cost", "timeline"):
            call = index % {"memory": 4, "cost": 1, "timeline": 7}.get(probe, 2)
            fault.arm(point, call)
            raised = tally.check(
                f"{name} at operator {point}", f"{probe}, fault", target, PROBES[probe]
            )
            # A slow model is called once by the system probe, and a later call may be shorter.
            tally.unreached += not raised


def _mix_flags(model: torch.nn.Module) -> None:
    """Leave flags as users do: in training mode, a part of it frozen, gradients there."""
    model.train()
    for index, module in enumerate(model.modules()):
        if index % 3 == 1:
            module.training = False
    for index, parameter in enumerate(model.parameters()):
        if index % 4 == 1 and parameter.dtype.is_floating_point:
            parameter.grad = torch.full_like(parameter, 0.5)
        if index % 5 == 4:
            parameter.requires_grad_(False)


@contextlib.contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.inference_mode():
        yield
    for module, flag in flags:
        module.training = flag


def _warm(target: Target) -> None:
    """Let the library load lazily what its first call needs: that is no probe's doing."""
    import copy

    model = copy.deepcopy(target.model)
    with _evaluating(model):
        copied = target.inputs.map(torch.clone)
        model(*copied.args, **copied.kwargs)


def _trainable(target: Target) -> bool:
    import copy

    model = copy.deepcopy(target.model)
    inputs = target.inputs.map(torch.clone)
    try:
        _loss(model.train()(*inputs.args, **inputs.kwargs), None).backward()
    except (RuntimeError, ValueError, TypeError):
        return False
    return True


def main() -> int:
    """Run the sweep and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="instead of all models")
    parser.add_argument("--family", choices=FAMILIES)
    options = parser.parse_args()
    chosen = (
        c
        for c in candidates()
        if (not options.names or c.name in options.names)
        and (options.family is None or c.family == options.family)
    )
    torch.set_num_threads(1)
    tempfile.tempdir = tempfile.mkdtemp()  # another program's files are no probe's doing
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start, tally = time.perf_counter(), Tally()
        sweep(chosen, tally, faults=FAULTY, trained=TRAINED)
    seconds = time.perf_counter() - start
    print(*tally.refused, *tally.changed[10:60], sep="\n")
    print("models:", dict(tally.models))
    print("runs:", dict(tally.runs), "in all", tally.runs.total())
    print("planted exceptions that no call reached:", tally.unreached)
    print(f"{tally.checks:,} checks, {len(tally.changed)} changed, {seconds:.0f} s")
    return 1 if tally.changed else 0


if __name__ == "__main__":
    sys.exit(main())
