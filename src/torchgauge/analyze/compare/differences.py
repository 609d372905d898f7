"""What two runs are of, the differences of target and environment, and the figures they forbid."""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge.records.comparison import Difference, Side
from torchgauge.records.environment import Environment, Machine, Settings, Software
from torchgauge.records.profile import Profile
from torchgauge.records.target import InputDescription, TargetDescription

MODEL = "model"
# Facts of the machine that its fingerprint holds; another host name or kernel is merely reported.
_HARDWARE = ("architecture", "cpu", "physical_cores", "logical_cores", "usable_cores", "cpu_quota")


def side_of(profile: Profile, label: str, processes: int) -> Side:
    """Return where a profile is from, with the number of processes that measured it."""
    return Side(
        label=label,
        target=profile.target,
        created=profile.environment.created,
        machine=profile.environment.machine.cpu,
        processes=processes,
    )


def differences(
    targets: tuple[TargetDescription, TargetDescription],
    environments: tuple[Environment, Environment],
) -> tuple[Difference, ...]:
    """Return the differences, those that forbid a comparison of times first."""
    a, b = environments
    differing = [
        *_machine(a.machine, b.machine),
        *_software(a.software, b.software),
        *_settings(a.settings, b.settings),
        *_target(*targets),
    ]
    return tuple(sorted(differing, key=lambda difference: not difference.timing))


def other_model(baseline: Profile, current: Profile) -> tuple[Difference, ...]:
    """Return the difference of two models: another class or factory, with other parameters.

    An edited model keeps its name, a renamed one its parameters: either is compared.
    """
    targets, sizes = (baseline.target, current.target), (baseline.size, current.size)
    names = [(target.name, target.spec.rpartition(":")[2]) for target in targets]
    parameters = [None if size is None else size.parameters for size in sizes]
    if names[0] == names[1] or None in parameters or parameters[0] == parameters[1]:
        return ()
    old, new = (f"{target.name} ({target.spec})" for target in targets)
    return (Difference(part="target", name=MODEL, baseline=old, current=new, work=True),)


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
            part="machine", name="memory", baseline=f"{memory[0]} GiB", current=f"{memory[1]} GiB"
        )
    if a.gpus and b.gpus and [gpu.name for gpu in a.gpus] != [gpu.name for gpu in b.gpus]:
        old, new = (", ".join(gpu.name for gpu in machine.gpus) for machine in (a, b))
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
            in_both = bool(old and new)  # one that was merely imported decides nothing
            yield Difference(
                part="software", name=name, baseline=_text(old), current=_text(new), timing=in_both
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
        old, new = ("a training step" if target.training else "inference" for target in (a, b))
        yield Difference(part="target", name="step", baseline=old, current=new, work=True)
    if a.runtime != b.runtime:
        # Beside a model in torch its runtime is what is compared.
        timing = bool(a.runtime and b.runtime)
        old, new = (_text(target.runtime or "torch") for target in (a, b))
        yield Difference(part="settings", name="runtime", baseline=old, current=new, timing=timing)
    named = bool(a.runtime) == bool(b.runtime)  # an exporter gives inputs names of their own
    old, new = (_inputs(target.inputs, named=named) for target in (a, b))
    if old != new:
        yield Difference(part="target", name="inputs", baseline=old, current=new, work=True)
    for name in ("spec", "name", "weights"):
        old, new = getattr(a, name), getattr(b, name)
        if old != new:
            yield Difference(part="target", name=name, baseline=old, current=new, timing=False)


def _inputs(inputs: tuple[InputDescription, ...], *, named: bool) -> str:
    return ", ".join(
        f"{tensor.name if named else ''} {'×'.join(map(str, tensor.shape))} {tensor.dtype}".strip()
        for tensor in inputs
    )


def _text(value: object) -> str:
    return "none" if value in (None, "") else str(value)
