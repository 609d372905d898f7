"""The memory of a training step, and of its passes, from the shapes and dtypes of parameters."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from torchgauge.errors import InputError
from torchgauge.records.memory.memory import MemoryPart, OptimizerMemory, TrainingMemory
from torchgauge.records.work.size import Size

OPTIMIZER = "adamw"
FACTORED = "adafactor"
# AdamW on float32 copies of half-precision parameters: what frameworks of mixed precision keep
# beside them, and no class of torch.optim.
MASTERS = "adamw-fp32"

# The state of torch.optim per parameter: tensors of its shape, and float32 scalars.
STATE_TENSORS = {
    "sgd": (0, 0),
    "sgd-momentum": (1, 0),  # momentum_buffer
    "adagrad": (1, 1),  # sum; step
    "rmsprop": (1, 1),  # square_avg; step
    "adam": (2, 1),  # exp_avg, exp_avg_sq; step
    "adamw": (2, 1),
    "adamw-amsgrad": (3, 1),  # and max_exp_avg_sq
}
OPTIMIZERS = (*STATE_TENSORS, FACTORED, MASTERS)
# Tensors like a parameter that an optimizer makes to step it, beside those left of the one before.
TEMPORARIES = {"adagrad": 1, "rmsprop": 1, "adam": 2, "adamw": 2, "adamw-amsgrad": 2, FACTORED: 1}
# How far the memory that a step really took is from `total`: see docs/costs.md.
LOW, HIGH = 0.9, 1.15
_HALF = frozenset({"float16", "bfloat16"})
_FP32 = 4  # bytes
Moment = Literal["forward", "backward", "optimizer"]


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
    """Return an optimizer's name as in `OPTIMIZERS`; raises InputError `optimizer-unknown`."""
    if name.lower() in OPTIMIZERS:
        return name.lower()
    raise InputError(
        f"The memory that the optimizer '{name}' needs is not known.",
        id="optimizer-unknown",
        cause=f"Known are {', '.join(OPTIMIZERS)}.",
        remedy="Choose one of them; "
        "`torchgauge profile TARGET --train` measures any of torch.optim.",
    )


def states(parameters: Iterable[Trainable], optimizer: str) -> dict[str, int]:
    """Return the bytes of an optimizer's states after a step, by dtype."""
    state_bytes: Counter[str] = Counter()
    for parameter in parameters:
        if optimizer == FACTORED:
            tensors, scalars = _factored_elements(parameter) * parameter.itemsize, 1
        elif optimizer == MASTERS and parameter.dtype in _HALF:
            tensors, scalars = 0, 1 + 3 * math.prod(parameter.shape)  # the copy and its two moments
        else:
            copies, scalars = STATE_TENSORS[OPTIMIZER if optimizer == MASTERS else optimizer]
            tensors = copies * parameter.bytes
        state_bytes[parameter.dtype] += tensors
        state_bytes["float32"] += scalars * _FP32
    return {dtype: size for dtype, size in state_bytes.items() if size}


def temporaries(parameters: Iterable[Trainable], optimizer: str) -> int:
    """Return the most bytes that an optimizer needs to step one parameter after the other."""
    copies = TEMPORARIES.get(OPTIMIZER if optimizer == MASTERS else optimizer, 0)
    if not copies:
        return 0
    sizes = [
        math.prod(parameter.shape) * _stepped_itemsize(parameter, optimizer)
        for parameter in parameters
    ]
    return max((copies * size + last for last, size in pairwise((0, *sizes))), default=0)


def training_memory(
    size: Size,
    parameters: Iterable[Trainable],
    *,
    inputs: int,
    passes: Passes | None,
    activations: int = 0,
    optimizer: str = OPTIMIZER,
) -> TrainingMemory:
    """Return the memory of a training step; `inputs` and `activations` are bytes.

    `passes` is what forward and backward hold beside parameters, buffers and inputs. None is not
    known: `activations` are then those that operators saved. No total is estimated of these, nor
    where operators hold an unknown amount.
    """
    trained = tuple(parameters)
    gradients: Counter[str] = Counter()
    for parameter in trained:
        gradients[parameter.dtype] += parameter.bytes
    always = {"parameters": size.parameter_bytes, "buffers": size.buffer_bytes, "inputs": inputs}

    def optimizer_memory(name: str) -> OptimizerMemory:
        state_bytes = states(trained, name)
        part = MemoryPart(
            bytes=sum(state_bytes.values()),
            how="estimated" if name == MASTERS else "counted",
            by_dtype=state_bytes,
        )
        persistent = {**always, "states": part.bytes}
        if passes is None:
            return OptimizerMemory(
                states=part, lower_bound=sum(persistent.values()) + gradients.total()
            )
        return _step(part, persistent, passes, temporaries(trained, name), gradients.total())

    return TrainingMemory(
        parameters=_counted(size.parameter_bytes),
        buffers=_counted(size.buffer_bytes),
        inputs=_counted(inputs),
        gradients=MemoryPart(bytes=gradients.total(), how="counted", by_dtype=dict(gradients)),
        activations=_counted(activations if passes is None else passes.activations),
        optimizers={name: optimizer_memory(name) for name in OPTIMIZERS},
        optimizer=optimizer,
    )


def _step(
    states: MemoryPart, persistent: dict[str, int], passes: Passes, temporary: int, gradients: int
) -> OptimizerMemory:
    """Return the memory of a step whose peak is in its passes, or while the optimizer steps."""
    parts, moment = dict(passes.parts), passes.moment
    if passes.after_backward + temporary > passes.peak:
        moment = "optimizer"
        parts = {
            "gradients": gradients,
            "activations": passes.after_backward - gradients,
            "workspace": temporary,
        }
    at_peak = {**persistent, **parts}
    lower_bound = sum(persistent.values()) + max(passes.after_backward, passes.activations)
    if passes.unknown:
        return OptimizerMemory(states=states, lower_bound=lower_bound)
    return OptimizerMemory(
        states=states,
        lower_bound=lower_bound,
        total=sum(at_peak.values()),
        moment=moment,
        at_peak=at_peak,
    )


def _stepped_itemsize(parameter: Trainable, optimizer: str) -> int:
    """Return the bytes of an element as the optimizer steps it."""
    return _FP32 if optimizer == MASTERS and parameter.dtype in _HALF else parameter.itemsize


def _factored_elements(parameter: Trainable) -> int:
    """Return the elements of Adafactor's row and column means, or its variance of a vector."""
    if len(parameter.shape) < 2:
        return math.prod(parameter.shape)
    *outer, rows, columns = parameter.shape
    return math.prod(outer) * (rows + columns)


def _counted(size: int) -> MemoryPart:
    return MemoryPart(bytes=size, how="counted")


class Block(NamedTuple):
    """An allocation: bytes, its pass, and whether it ended with its operator."""

    size: int
    backward: bool
    scratch: bool = False


class BlockLifetimes:
    """The begins and ends of blocks, in order."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.events: list[tuple[int, int]] = []  # the block, and its bytes more or less
        self.may_replace: set[int] = set()

    def begin(self, block: Block, *, may_replace: bool = False) -> int:
        """Note that a block begins, and return its number.

        With `may_replace` it takes the place of another, where that ends before a third begins.
        """
        number = len(self.blocks)
        if may_replace:
            self.may_replace.add(len(self.events))
        self.blocks.append(block)
        self.events.append((number, block.size))
        return number

    def end(self, number: int) -> None:
        """Note that a block ends."""
        self.events.append((number, -self.blocks[number].size))


@dataclasses.dataclass(frozen=True)
class Passes:
    """Forward and backward pass in bytes, beyond what was there before.

    Attributes:
        peak: The most that was alive at once.
        moment: The pass in which that was.
        parts: What was alive then: gradients of parameters, activations (made in the forward pass,
            outputs and cast weights among them), workspace (all else). They add up to `peak`.
        activations: Alive at the end of the forward pass.
        after_backward: Alive at the end of the backward pass: gradients, outputs.
        unknown: Operators that may hold more than is known, so that the peak may be higher.
    """

    peak: int
    moment: Moment
    parts: dict[str, int]
    activations: int
    after_backward: int
    unknown: tuple[str, ...] = ()


def passes(lives: BlockLifetimes, forward_end: int, gradients: Iterable[int]) -> Passes:
    """Return what two passes need; `forward_end` events belong to the first, all to both."""
    live = list(accumulate(size for _, size in lives.events))
    counted = [0 if index in lives.may_replace else size for index, size in enumerate(live)]
    peak = max(counted, default=0)
    peak_event = counted.index(peak) if counted else -1
    return Passes(
        peak=peak,
        moment="forward" if peak_event < forward_end else "backward",
        parts=_parts(lives, peak_event, frozenset(gradients)),
        activations=live[forward_end - 1] if forward_end else 0,
        after_backward=live[-1] if live else 0,
    )


def _parts(lives: BlockLifetimes, peak_event: int, gradients: frozenset[int]) -> dict[str, int]:
    parts = {"gradients": 0, "activations": 0, "workspace": 0}
    for number, size in lives.events[: peak_event + 1]:
        block = lives.blocks[number]
        if number in gradients:
            parts["gradients"] += size
        elif block.backward or block.scratch:
            parts["workspace"] += size
        else:
            parts["activations"] += size
    return parts
