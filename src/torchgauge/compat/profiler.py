"""Profiler: figures of a model as plain numbers, for torch and for NumPy teaching frameworks."""

from __future__ import annotations

import math
import sys
from typing import Any, Self

from torchgauge.analyze.latency.latency import combine
from torchgauge.analyze.memory.training_memory import Trainable, states
from torchgauge.analyze.work.bottleneck import bottleneck
from torchgauge.clock import SystemClock
from torchgauge.compat.results import Figures
from torchgauge.compat.subject import (
    InvalidError,
    Shape,
    Subject,
    checked_shape,
    given_inputs,
    is_tensor,
    is_torch,
    raises_as_the_model,
)
from torchgauge.errors import MeasurementError
from torchgauge.records.latency.latency import Latency, LatencyRun
from torchgauge.records.memory.memory import Memory
from torchgauge.records.work.cost import Cost
from torchgauge.targets.inputs.inputs import Inputs

MEGABYTE = 1e6
ESTIMATED_OPTIMIZERS = ("sgd", "sgd-momentum", "adam", "adamw")


class Profiler:
    """Counts, times and weighs a model: a torch.nn.Module, a framework on NumPy, or any callable.

    A shape includes the batch as its first dimension; a shape of one dimension is one sample, and
    so is an image without a batch before a convolution. FLOPs are those of `tg.count_cost`: 2 per
    multiply-accumulate, and the elementwise work. What is not known is None, never 0. 1 MB is
    10⁶ bytes. The model and its inputs are left as they were. What the model raises reaches the
    caller as a MeasurementError that is of the model's exception type too.

    `with profiler:` times a block; `elapsed` is then its ms, of the GPU's work too.
    """

    elapsed: float | None = None
    """Milliseconds of the last block `with profiler:`; None before its end."""

    def __enter__(self) -> Self:
        _wait_for_gpu()
        self._entered = SystemClock.now()
        return self

    def __exit__(self, *raised: object) -> None:
        _wait_for_gpu()
        self.elapsed = (SystemClock.now() - self._entered) * 1e-6

    @raises_as_the_model
    def count_parameters(self, model: Any) -> int | None:
        """Return the elements of all parameters, a shared one once; None of a plain function."""
        return _subject_of(model).parameters()

    @raises_as_the_model
    def count_flops(self, model: Any, input_shape: Shape) -> int | None:
        """Return the FLOPs of one sample, whatever the batch; None where part of them is unknown.

        Of a tensor in place of a model it is one for each element of the shape, as of any
        elementwise operation. Raises MeasurementError where the model raises.
        """
        shape = checked_shape(input_shape)
        if is_tensor(model):
            return math.prod(shape)
        subject = _subject_of(model)
        try:
            return subject.sample_cost(shape).exact_flops
        except MeasurementError:
            # A model that knows its batch takes no other: the samples share its work.
            inputs = subject.inputs(shape)
            return _shared(subject.cost(inputs), subject.batch(inputs))

    @raises_as_the_model
    def measure_memory(self, model: Any, input_shape: Shape) -> dict[str, Any]:
        """Return the memory of a call in MB: parameters, what the call allocates, and the peak.

        `activation_memory_mb` is all that the call holds at its peak beyond parameters, buffers and
        inputs. `memory_efficiency` is the share of the peak that any run of this model must hold:
        its parameters, buffers, inputs and outputs. Without torch it is measured by tracemalloc.
        Of a plain function these parts are not known.
        """
        subject = _subject_of(model)
        memory = subject.memory(subject.inputs(checked_shape(input_shape)))
        return Figures(_memory(memory, subject.parameters()))

    @raises_as_the_model
    def measure_latency(
        self, model: Any, input_tensor: Any, warmup: int = 10, iterations: int = 100
    ) -> float:
        """Return the median time of a call in ms, over the calls after the warm-up.

        Raises ValueError for fewer than 1 iteration or 0 warm-up calls.
        """
        _check(warmup, iterations)
        inputs = given_inputs(input_tensor)
        return _subject_of(model, inputs).latency(inputs, warmup, iterations).median * 1e3

    @raises_as_the_model
    def profile_layer(self, layer: Any, input_shape: Shape) -> dict[str, Any]:
        """Return the figures of `profile_forward_pass` for one layer, and its class."""
        inputs = _subject_of(layer).inputs(checked_shape(input_shape))
        name = type(layer).__name__
        figures = self.profile_forward_pass(layer, inputs)
        return Figures({"layer_name": name, "layer_type": name, **figures})

    @raises_as_the_model
    def profile_forward_pass(
        self, model: Any, input_tensor: Any, *, warmup: int = 10, iterations: int = 100
    ) -> dict[str, Any]:
        """Return parameters, work, time and memory of a call, and what bounds it.

        `flops` is of one sample, `batch_flops` of the call; both are None where part of the work is
        unknown, which `unknown` names, and with the rates where calls do other work each time;
        `flops_at_least` is what a call has in any case.
        `gflops_per_second` is `batch_flops` over the median latency. `bottleneck` is that of
        `tg.profile`: "compute", "memory", "overhead" or "unknown"; `bottleneck_confidence` says how
        sure it is, `bottleneck_evidence` why. The time is what `measure_latency` says where a
        subclass has its own.
        """
        _check(warmup, iterations)
        inputs = given_inputs(input_tensor)
        subject = _subject_of(model, inputs)
        own = self._own_latency(model, inputs, warmup, iterations)
        timed = own or subject.latency(inputs, warmup, iterations)
        memory, cost = subject.memory(inputs), subject.cost(inputs)
        batch, parameters = subject.batch(inputs), subject.parameters()
        rates = _rates(cost, timed, subject)
        figures = {
            "parameters": parameters,
            "batch_size": batch,
            "flops": _sample_flops(subject, inputs, cost, batch),
            "batch_flops": cost.exact_flops,
            "flops_at_least": cost.least_flops,
            "unknown": tuple(cost.unknown),
            "latency_ms": timed.median * 1e3,
            "throughput_samples_per_second": _ratio(batch, timed.median),
            **_memory(memory, parameters),
            **rates,
            **_flags(rates["bottleneck"]),
        }
        return Figures(figures)

    @raises_as_the_model
    def profile_backward_pass(
        self, model: Any, input_tensor: Any, *, warmup: int = 10, iterations: int = 100
    ) -> dict[str, Any]:
        """Return forward, backward and both together, of the whole batch, and a step's memory.

        torch's passes are measured and counted with the outputs' mean as the loss. Of a framework
        on NumPy the time is measured where outputs have a `backward`, and the work is estimated as
        twice the forward's. So is the time where a subclass has its own `measure_latency`, which
        says the forward's. `bottleneck` is the forward pass's. `total_memory_mb` is the peak of
        both passes, measured; without a backward to run it is what forward and gradients hold, "at
        least" (`total_memory_how`). `optimizer_memory_estimates` is MB of what an optimizer keeps.
        """
        _check(warmup, iterations)
        inputs = given_inputs(input_tensor)
        subject = _subject_of(model, inputs)
        passes = subject.backward(inputs, warmup, iterations)
        own = self._own_latency(model, inputs, warmup, iterations)
        if own is not None:
            passes = passes._replace(forward=own.median, backward=2 * own.median)
        timed = _latency_of(passes.forward) or subject.latency(inputs, warmup, iterations)
        forward, backward = timed.median, passes.backward
        memory, cost = subject.memory(inputs), subject.cost(inputs)
        flops = cost.exact_flops
        trainable = subject.trainable()
        gradients = sum(parameter.bytes for parameter in trainable)
        total, work = _sum(forward, backward), _sum(flops, passes.flops)
        peak = passes.peak
        figures = {
            "forward_flops": flops,
            "forward_latency_ms": _scaled(forward, 1e3),
            "forward_memory_mb": memory.peak / MEGABYTE,
            "backward_flops": passes.flops,
            "backward_flops_how": "estimated" if passes.estimated else "counted",
            "backward_latency_ms": _scaled(backward, 1e3),
            "backward_latency_how": None
            if backward is None
            else ("measured" if own is None else "estimated"),
            "gradient_memory_mb": gradients / MEGABYTE,
            "total_flops": work,
            "total_latency_ms": _scaled(total, 1e3),
            "total_memory_mb": (memory.peak + gradients if peak is None else peak) / MEGABYTE,
            "total_memory_how": "at least" if peak is None else "measured",
            "total_gflops_per_second": _scaled(_ratio(work, total), 1e-9),
            "optimizer_memory_estimates": _optimizers(trainable),
            "memory_efficiency": _memory(memory, subject.parameters())["memory_efficiency"],
            "bottleneck": _rates(cost, timed, subject)["bottleneck"],
        }
        return Figures(figures)

    def _own_latency(
        self, model: Any, inputs: Inputs, warmup: int, iterations: int
    ) -> Latency | None:
        """Return what a subclass's or an instance's own `measure_latency` says, else None."""
        if getattr(self.measure_latency, "__func__", None) is Profiler.measure_latency:
            return None
        argument = inputs.as_given()
        ms = self.measure_latency(model, argument, warmup=warmup, iterations=iterations)
        return _latency_of(float(ms) * 1e-3)


def quick_profile(
    model: Any, input_tensor: Any, profiler: Profiler | None = None
) -> dict[str, Any]:
    """Return `profile_forward_pass(model, input_tensor)` of the profiler, else of a new one.

    Examples:
        >>> import torch, torchgauge as tg
        >>> figures = tg.quick_profile(torch.nn.Linear(4, 2), torch.ones(8, 4))
        >>> figures["parameters"], figures["batch_flops"]
        (10, 128)
    """
    return (profiler or Profiler()).profile_forward_pass(model, input_tensor)


def _wait_for_gpu() -> None:
    """Return when what torch gave the GPU is done; at once without a GPU or torch."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _latency_of(seconds: float | None) -> Latency | None:
    """Return the latency of which one figure is known."""
    if seconds is None:
        return None
    run = LatencyRun(
        samples=(seconds,),
        warmup=0,
        steady=True,
        first_call=seconds,
        median=seconds,
        interval=None,
        autocorrelation=1.0,
        stop="iterations done",
    )
    return combine([run])


def _flags(answer: str) -> dict[str, bool | None]:
    """Return what bounds a call as yes and no; None where it is not known."""
    is_known = answer != "unknown"
    return {
        f"is_{bound}_bound": answer == bound if is_known else None
        for bound in ("memory", "compute")
    }


def _check(warmup: int, iterations: int) -> None:
    for name, value, minimum in (("warmup", warmup, 0), ("iterations", iterations, 1)):
        if value < minimum:
            raise InvalidError(
                f"{name} = {value} is not possible.",
                id="option-invalid",
                cause=f"{name} must be {minimum} or more.",
                remedy=f"Give {name} as {minimum} or more.",
            )


def _sample_flops(subject: Subject, inputs: Inputs, cost: Cost, batch: int | None) -> int | None:
    if batch == 1:
        return cost.exact_flops
    try:
        return subject.cost(subject.first_sample(inputs)).exact_flops
    except MeasurementError:
        return _shared(cost, batch)


def _shared(cost: Cost, batch: int | None) -> int | None:
    flops = cost.exact_flops
    return None if flops is None or not batch else flops // batch


def _memory(memory: Memory, parameters: int | None) -> dict[str, Any]:
    """Return the memory in MB; without parts for a plain function, whose parameters are unknown."""
    persistent = memory.parameters + memory.buffers + memory.inputs
    has_parameters = parameters is not None
    return {
        "parameter_memory_mb": memory.parameters / MEGABYTE if has_parameters else None,
        "activation_memory_mb": (memory.peak - persistent) / MEGABYTE if has_parameters else None,
        "peak_memory_mb": memory.peak / MEGABYTE,
        "memory_efficiency": _ratio(persistent + memory.outputs, memory.peak)
        if has_parameters
        else None,
    }


def _rates(cost: Cost, timed: Latency, subject: Subject) -> dict[str, Any]:
    """Return rates of the call and what bounds it; None where the work is not known."""
    seconds, flops = timed.median, cost.exact_flops
    bound = bottleneck(cost, timed, subject.roofs(cost))
    ideal_time = _sum(bound.compute_time, bound.memory_time)
    return {
        "gflops_per_second": _scaled(_ratio(flops, seconds), 1e-9),
        "memory_bandwidth_mbs": None
        if flops is None
        else _scaled(_ratio(cost.bytes, seconds), 1e-6),
        "computational_efficiency": None if flops is None else _ratio(ideal_time, seconds),
        "bottleneck": bound.kind or "unknown",
        "bottleneck_confidence": bound.confidence,
        "bottleneck_evidence": bound.evidence,
    }


def _optimizers(trainable: list[Trainable]) -> dict[str, float]:
    return {name: sum(states(trainable, name).values()) / MEGABYTE for name in ESTIMATED_OPTIMIZERS}


def _ratio(amount: float | None, divisor: float | None) -> float | None:
    return amount / divisor if amount is not None and divisor else None


def _scaled(amount: float | None, factor: float) -> float | None:
    return None if amount is None else amount * factor


def _sum(first: Any, second: Any) -> Any:
    return None if first is None or second is None else first + second


def _subject_of(model: Any, inputs: Inputs | None = None) -> Subject:
    """Return the model as a subject: of torch where it is a module or takes tensors."""
    if is_torch(model, inputs):
        from torchgauge.compat.torch_subject import TorchSubject

        return TorchSubject(model)
    from torchgauge.compat.array_subject import ArraySubject

    return ArraySubject(model)
