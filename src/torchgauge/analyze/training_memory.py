"""The memory of a training step from the shapes and dtypes of its parameters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from torchgauge.errors import InputError
from torchgauge.model.size import Size
from torchgauge.model.training_memory import MemoryPart, OptimizerMemory, TrainingMemory

OPTIMIZER = "adamw"
FACTORED = "adafactor"
# AdamW on float32 copies of half-precision parameters: what frameworks of mixed precision keep
# beside them, and no class of torch.optim.
MASTERS = "adamw-fp32"

# What torch.optim keeps of each parameter: so many tensors like it, so many float32 scalars.
KEPT = {
    "sgd": (0, 0),
    "sgd-momentum": (1, 0),  # momentum_buffer
    "adagrad": (1, 1),  # sum; step
    "rmsprop": (1, 1),  # square_avg; step
    "adam": (2, 1),  # exp_avg, exp_avg_sq; step
    "adamw": (2, 1),
    "adamw-amsgrad": (3, 1),  # and max_exp_avg_sq
}
OPTIMIZERS = (*KEPT, FACTORED, MASTERS)
_HALF = frozenset({"float16", "bfloat16"})
_FP32 = 4  # bytes


class Trainable(NamedTuple):
    """A parameter that is trained; `itemsize` is bytes per element."""

    shape: tuple[int, ...]
    dtype: str
    itemsize: int

    @property
    def bytes(self) -> int:
        """Its size, and that of its gradient."""
        return math.prod(self.shape) * self.itemsize


def optimizer_named(name: str) -> str:
    """Return an optimizer's name as `OPTIMIZERS` has it; raises InputError `optimizer-unknown`."""
    if name.lower() in OPTIMIZERS:
        return name.lower()
    raise InputError(
        f"What '{name}' keeps in memory is not known.",
        id="optimizer-unknown",
        cause=f"Known are {', '.join(OPTIMIZERS)}.",
        remedy="Choose one of them; `torchgauge profile --train` measures any of torch.optim.",
    )


def states(parameters: Iterable[Trainable], optimizer: str) -> dict[str, int]:
    """Return the bytes of an optimizer's states after a step, by dtype."""
    found: Counter[str] = Counter()
    for one in parameters:
        if optimizer == FACTORED:
            tensors, scalars = _factored(one) * one.itemsize, 1
        elif optimizer == MASTERS and one.dtype in _HALF:
            tensors, scalars = 0, 1 + 3 * math.prod(one.shape)  # the copy and its two moments
        else:
            copies, scalars = KEPT[OPTIMIZER if optimizer == MASTERS else optimizer]
            tensors = copies * one.bytes
        found[one.dtype] += tensors
        found["float32"] += scalars * _FP32
    return {dtype: size for dtype, size in found.items() if size}


def training_memory(
    size: Size,
    parameters: Iterable[Trainable],
    *,
    inputs: int,
    activations: int,
    optimizer: str = OPTIMIZER,
) -> TrainingMemory:
    """Return what a training step holds; `inputs` and `activations` are bytes."""
    trained = tuple(parameters)
    gradients: Counter[str] = Counter()
    for one in trained:
        gradients[one.dtype] += one.bytes
    always = size.bytes + inputs
    larger, both = max(gradients.total(), activations), gradients.total() + activations

    def whole(name: str) -> OptimizerMemory:
        kept = states(trained, name)
        part = MemoryPart(
            bytes=sum(kept.values()),
            how="estimated" if name == MASTERS else "counted",
            by_dtype=kept,
        )
        return OptimizerMemory(
            states=part, least=always + part.bytes + larger, total=always + part.bytes + both
        )

    return TrainingMemory(
        parameters=_counted(size.parameter_bytes),
        buffers=_counted(size.buffer_bytes),
        inputs=_counted(inputs),
        gradients=MemoryPart(bytes=gradients.total(), how="counted", by_dtype=dict(gradients)),
        activations=_counted(activations),
        optimizers={name: whole(name) for name in OPTIMIZERS},
        optimizer=optimizer,
    )


def _factored(one: Trainable) -> int:
    """Return the elements of Adafactor's row and column means, or its variance of a vector."""
    if len(one.shape) < 2:
        return math.prod(one.shape)
    *outer, rows, columns = one.shape
    return math.prod(outer) * (rows + columns)


def _counted(size: int) -> MemoryPart:
    return MemoryPart(bytes=size, how="counted")
