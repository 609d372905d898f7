"""What is not the same around two runs, and which figures cannot be compared across it."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.model.comparison import Difference
from torchgauge.model.environment import Environment, Machine, Settings, Software
from torchgauge.model.target import InputDescription, TargetDescription

# Facts of the machine that its fingerprint holds; another host name or kernel is merely told.
_HARDWARE = ("architecture", "cpu", "physical_cores", "logical_cores", "usable_cores", "cpu_quota")


def differences(
    targets: tuple[TargetDescription, TargetDescription],
    environments: tuple[Environment, Environment],
) -> tuple[Difference, ...]:
    """Return what differs, that which forbids a comparison of times first."""
    a, b = environments
    found = [
        *_machine(a.machine, b.machine),
        *_software(a.software, b.software),
        *_settings(a.settings, b.settings),
        *_target(*targets),
    ]
    return tuple(sorted(found, key=lambda one: not one.timing))


def _machine(a: Machine, b: Machine) -> Iterator[Difference]:
    for name in _HARDWARE:
        old, new = getattr(a, name), getattr(b, name)
        if old != new:
            yield Difference(part="machine", name=name, baseline=_text(old), current=_text(new))
    memory = [
        None if machine.memory is None else round(machine.memory / 2**30) for machine in (a, b)
    ]
    if None not in memory and memory[0] != memory[1]:
        yield Difference(
            part="machine",
            name="memory",
            baseline=f"{memory[0]} GiB",
            current=f"{memory[1]} GiB",
        )
    if a.gpus and b.gpus and [one.name for one in a.gpus] != [one.name for one in b.gpus]:
        old, new = (", ".join(one.name for one in machine.gpus) for machine in (a, b))
        yield Difference(part="machine", name="GPUs", baseline=old, current=new)
    if a.system != b.system:
        yield Difference(
            part="machine", name="system", baseline=a.system, current=b.system, timing=False
        )


def _software(a: Software, b: Software) -> Iterator[Difference]:
    for name in ("torch", "python", "cuda", "cudnn", "driver"):
        old, new = getattr(a, name), getattr(b, name)
        if old != new:
            work = name == "torch"  # it decides into which operators a model falls apart
            yield Difference(
                part="software", name=name, baseline=_text(old), current=_text(new), work=work
            )
    if a.torchgauge != b.torchgauge:
        yield Difference(
            part="software",
            name="torchgauge",
            baseline=a.torchgauge,
            current=b.torchgauge,
            timing=False,
        )
    for name in sorted({*a.libraries, *b.libraries}):
        old, new = a.libraries.get(name, ""), b.libraries.get(name, "")
        if old != new:
            both = bool(old and new)  # one that was merely imported decides nothing
            yield Difference(
                part="software", name=name, baseline=_text(old), current=_text(new), timing=both
            )


def _settings(a: Settings, b: Settings) -> Iterator[Difference]:
    for name in ("threads", "interop_threads", "fp32_matmul", "fp32_convolution", "deterministic"):
        old, new = getattr(a, name), getattr(b, name)
        if old != new:
            yield Difference(part="settings", name=name, baseline=_text(old), current=_text(new))
    for name in sorted({*a.variables, *b.variables}):
        old, new = a.variables.get(name, ""), b.variables.get(name, "")
        if old != new:
            yield Difference(part="settings", name=name, baseline=_text(old), current=_text(new))


def _target(a: TargetDescription, b: TargetDescription) -> Iterator[Difference]:
    for name in ("device", "precision", "precision_method"):
        old, new = getattr(a, name), getattr(b, name)
        if old != new:
            yield Difference(part="target", name=name, baseline=old, current=new)
    if a.training != b.training:
        old, new = ("a training step" if one.training else "inference" for one in (a, b))
        yield Difference(part="target", name="step", baseline=old, current=new, work=True)
    old, new = _inputs(a.inputs), _inputs(b.inputs)
    if old != new:
        yield Difference(part="target", name="inputs", baseline=old, current=new, work=True)
    for name in ("spec", "name", "weights"):
        old, new = getattr(a, name), getattr(b, name)
        if old != new:
            yield Difference(part="target", name=name, baseline=old, current=new, timing=False)


def _inputs(inputs: tuple[InputDescription, ...]) -> str:
    return ", ".join(f"{one.name} {'×'.join(map(str, one.shape))} {one.dtype}" for one in inputs)


def _text(value: object) -> str:
    return "none" if value in (None, "") else str(value)
