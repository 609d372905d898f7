"""Profiler: figures of a model as plain numbers, for torch and for NumPy teaching frameworks."""

from __future__ import annotations

from typing import Any

from torchgauge.analyze.bottleneck import bottleneck
from torchgauge.analyze.training_memory import Trainable, states
from torchgauge.compat.subject import (
    InvalidError,
    Shape,
    Subject,
    checked_shape,
    given_inputs,
    subject_of,
)
from torchgauge.errors import MeasurementError
from torchgauge.model.cost import Cost
from torchgauge.model.latency import Latency
from torchgauge.model.memory import Memory
from torchgauge.target.inputs import Inputs

MEGABYTE = 1e6
ESTIMATED_OPTIMIZERS = ("sgd", "sgd-momentum", "adam", "adamw")


class Profiler:
    """Counts, times and weighs a model: a torch.nn.Module, a framework on NumPy, or any callable.

    A shape includes the batch as its first dimension; a shape of one dimension is one sample, and
    so is an image without a batch before a convolution. FLOPs are those of `tg.count_cost`: 2 per
    multiply-accumulate, and the elementwise work. What is not known is None, never 0. 1 MB is
    10⁶ bytes. The model and its inputs are left as they were.
    """

    def count_parameters(self, model: Any) -> int | None:
        """Return the elements of all parameters, a shared one once; None of a plain function."""
        return subject_of(model).parameters()

    def count_flops(self, model: Any, input_shape: Shape) -> int | None:
        """Return the FLOPs of one sample, whatever the batch; None where part of them is unknown.

        Raises MeasurementError where the model raises.
        """
        shape, subject = checked_shape(input_shape), subject_of(model)
        try:
            return _known(subject.sample_cost(shape))
        except MeasurementError:
            # A model that knows its batch takes no other: the samples share its work.
            inputs = subject.inputs(shape)
            return _shared(subject.cost(inputs), subject.batch(inputs))

    def measure_memory(self, model: Any, input_shape: Shape) -> dict[str, Any]:
        """Return the memory of a call in MB: parameters, what the call allocates, and the peak.

        `activation_memory_mb` is all that the call holds at its peak beyond parameters, buffers and
        inputs. `memory_efficiency` is the share of the peak that any run of this model must hold:
        its parameters, buffers, inputs and outputs. Without torch it is measured by tracemalloc.
        """
        subject = subject_of(model)
        return _memory(subject.memory(subject.inputs(checked_shape(input_shape))))

    def measure_latency(
        self, model: Any, input_tensor: Any, warmup: int = 10, iterations: int = 100
    ) -> float:
        """Return the median time of a call in ms, of so many after the warm-up.

        Raises ValueError for fewer than 1 iteration or 0 warm-up calls.
        """
        _check(warmup, iterations)
        inputs = given_inputs(input_tensor)
        return subject_of(model, inputs).latency(inputs, warmup, iterations).median * 1e3

    def profile_layer(self, layer: Any, input_shape: Shape) -> dict[str, Any]:
        """Return the figures of `profile_forward_pass` for one layer, and its class."""
        inputs = subject_of(layer).inputs(checked_shape(input_shape))
        return {"layer_name": type(layer).__name__, **self.profile_forward_pass(layer, inputs)}

    def profile_forward_pass(
        self, model: Any, input_tensor: Any, *, warmup: int = 10, iterations: int = 100
    ) -> dict[str, Any]:
        """Return parameters, work, time and memory of a call, and what bounds it.

        `flops` is of one sample, `batch_flops` of the call; where part of the work is unknown both
        are None, `flops_at_least` is what is known of the call, and `unknown` names the rest.
        `gflops_per_second` is `batch_flops` over the median latency. `bottleneck` is that of
        `tg.profile`: "compute", "memory", "overhead" or "unknown"; `bottleneck_confidence` says how
        sure it is, `bottleneck_evidence` why.
        """
        _check(warmup, iterations)
        inputs = given_inputs(input_tensor)
        subject = subject_of(model, inputs)
        timed = subject.latency(inputs, warmup, iterations)
        memory, cost = subject.memory(inputs), subject.cost(inputs)
        batch = subject.batch(inputs)
        return {
            "parameters": subject.parameters(),
            "batch_size": batch,
            "flops": _of_one(subject, inputs, cost, batch),
            "batch_flops": _known(cost),
            "flops_at_least": cost.flops,
            "unknown": tuple(cost.unknown),
            "latency_ms": timed.median * 1e3,
            "throughput_samples_per_second": _over(batch, timed.median),
            **_memory(memory),
            **_rates(cost, timed, subject),
        }

    def profile_backward_pass(
        self, model: Any, input_tensor: Any, *, warmup: int = 10, iterations: int = 100
    ) -> dict[str, Any]:
        """Return forward, backward and both together, of the whole batch, and a step's memory.

        torch's passes are measured and counted with the outputs' mean as the loss. Of a framework
        on NumPy the time is measured where outputs have a `backward`, and the work is estimated as
        twice the forward's. `optimizer_memory_estimates` is MB of what an optimizer keeps.
        """
        _check(warmup, iterations)
        inputs = given_inputs(input_tensor)
        subject = subject_of(model, inputs)
        passes = subject.backward(inputs, warmup, iterations)
        forward = passes.forward
        if forward is None:
            forward = subject.latency(inputs, warmup, iterations).median
        memory, flops = subject.memory(inputs), _known(subject.cost(inputs))
        trainable = subject.trainable()
        gradients = sum(one.bytes for one in trainable)
        total, work = _sum(forward, passes.backward), _sum(flops, passes.flops)
        return {
            "forward_flops": flops,
            "forward_latency_ms": _times(forward, 1e3),
            "forward_memory_mb": memory.peak / MEGABYTE,
            "backward_flops": passes.flops,
            "backward_flops_how": "estimated" if passes.estimated else "counted",
            "backward_latency_ms": _times(passes.backward, 1e3),
            "gradient_memory_mb": gradients / MEGABYTE,
            "total_flops": work,
            "total_latency_ms": _times(total, 1e3),
            "total_memory_mb": (memory.peak + gradients) / MEGABYTE,
            "total_gflops_per_second": _times(_over(work, total), 1e-9),
            "optimizer_memory_estimates": _optimizers(trainable),
        }


def quick_profile(model: Any, input_tensor: Any) -> dict[str, Any]:
    """Return `Profiler().profile_forward_pass(model, input_tensor)`."""
    return Profiler().profile_forward_pass(model, input_tensor)


def _check(warmup: int, iterations: int) -> None:
    for name, value, least in (("warmup", warmup, 0), ("iterations", iterations, 1)):
        if value < least:
            raise InvalidError(
                f"{name} = {value} is not possible.",
                id="option-invalid",
                cause=f"{name} must be {least} or more.",
                remedy=f"Give {name} as {least} or more.",
            )


def _of_one(subject: Subject, inputs: Inputs, cost: Cost, batch: int | None) -> int | None:
    if batch == 1:
        return _known(cost)
    try:
        return _known(subject.cost(subject.one(inputs)))
    except MeasurementError:
        return _shared(cost, batch)


def _shared(cost: Cost, batch: int | None) -> int | None:
    flops = _known(cost)
    return None if flops is None or not batch else flops // batch


def _known(cost: Cost) -> int | None:
    return None if cost.at_least else cost.flops


def _memory(found: Memory) -> dict[str, Any]:
    held = found.parameters + found.buffers + found.inputs
    return {
        "parameter_memory_mb": found.parameters / MEGABYTE,
        "activation_memory_mb": (found.peak - held) / MEGABYTE,
        "peak_memory_mb": found.peak / MEGABYTE,
        "memory_efficiency": _over(held + found.outputs, found.peak),
    }


def _rates(cost: Cost, timed: Latency, subject: Subject) -> dict[str, Any]:
    """Return rates of the call and what bounds it; None where the work is not known."""
    seconds, flops = timed.median, _known(cost)
    bound = bottleneck(cost, timed, subject.roofs(cost))
    least = _sum(bound.compute_time, bound.memory_time)
    return {
        "gflops_per_second": _times(_over(flops, seconds), 1e-9),
        "memory_bandwidth_mbs": None if flops is None else _times(_over(cost.bytes, seconds), 1e-6),
        "computational_efficiency": None if flops is None else _over(least, seconds),
        "bottleneck": bound.kind or "unknown",
        "bottleneck_confidence": bound.confidence,
        "bottleneck_evidence": bound.evidence,
    }


def _optimizers(trainable: list[Trainable]) -> dict[str, float]:
    return {name: sum(states(trainable, name).values()) / MEGABYTE for name in ESTIMATED_OPTIMIZERS}


def _over(amount: float | None, of: float | None) -> float | None:
    return amount / of if amount is not None and of else None


def _times(amount: float | None, factor: float) -> float | None:
    return None if amount is None else amount * factor


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other
