"""How much memory a call needs, and what for."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from torchgauge.records.record import GradMode, How, MeasurementWarning, Record

Part = Literal[
    "parameters",
    "buffers",
    "inputs",
    "outputs",
    "activations",
    "gradients",
    "optimizer",
    "workspace",
]


class AliveTensor(Record, frozen=True, kw_only=True):
    """A tensor's storage, or several small ones of a part together.

    Attributes:
        part: What it is for.
        name: Of parameters, buffers and inputs their own, of gradients and the optimizer's state
            the parameter's with what it is; of what the step made, the layer that was running.
            "" where there is none.
        operator: That which made it in this step; "" for what was there before.
        size: Bytes of its storage.
        count: How many storages.
        shape: None where it is not known: of what the step made, that of layers' outputs is.
        dtype: As torch names it, without "torch."; "" where it is not known.
    """

    part: Part
    name: str
    size: int
    operator: str = ""
    count: int = 1
    shape: tuple[int, ...] | None = None
    dtype: str = ""


RunningPhase = Literal["loading", "forward", "backward", "recompute", "optimizer", "outside"]


class OutOfMemory(Record, frozen=True, kw_only=True):
    """An allocation that failed, or memory near the limit at which the kernel kills.

    Attributes:
        device: Where: "cpu", "cuda:0".
        message: What torch or Python said, its first line; near a limit how near.
        requested: Bytes that were asked for; None where the message does not say.
        free: Bytes that could still be allocated; None where nothing tells.
        step: Steps that had ended before.
        layer: The layer that was running, in a backward pass the one of whose parameters the
            gradients are; "" for none, or where it is not known.
        function: What raised in a backward pass, as "GeluBackward0"; "" where it is not known.
        after: The layer whose backward had ended last before; "" likewise.
        phase: What the loop did; None in records of earlier versions.
        caught: Whether the program went on; None where that was not known yet.
        total: Bytes of tensors alive on the device: of the allocator on a GPU; on a CPU of those
            found.
        tensors: The largest tensors alive; smaller ones of a part are one entry. Found are those
            that Python holds, and what their autograd graph has saved.
        limit: Bytes that the process and others of its cgroup may use, of which `free` are left;
            None where an allocation failed.
        snapshot: The file of the allocator's snapshot, for `torchgauge snapshot`; "" for none.
    """

    device: str
    message: str
    requested: int | None = None
    free: int | None = None
    step: int = 0
    layer: str = ""
    function: str = ""
    after: str = ""
    phase: RunningPhase | None = None
    caught: bool | None = None
    total: int | None = None
    tensors: tuple[AliveTensor, ...] = ()
    limit: int | None = None
    snapshot: str = ""
    how: How = "measured"

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of the tensors found, by part."""
        sizes: dict[str, int] = {}
        for tensor in self.tensors:
            sizes[tensor.part] = sizes.get(tensor.part, 0) + tensor.size
        return sizes


PARTS: tuple[Part, ...] = get_args(Part)


class Fragmentation(Record, frozen=True, kw_only=True):
    """Three views of what an allocator holds beyond what was asked of it, in bytes.

    `internal`: allocated − requested. `external`: inactive split blocks. `reserved_unused`:
    reserved − active. `largest_free` against `total_free` tells whether one large request fits.
    """

    internal: int | None
    external: int | None
    reserved_unused: int
    largest_free: int | None
    total_free: int | None


class MemoryPoint(Record, frozen=True, kw_only=True, array_like=True):
    """Live tensor bytes from a moment on.

    Attributes:
        time: Nanoseconds from the step's start.
        live: Bytes in all.
        parts: The same by part, in the order of `PARTS`; empty in records of earlier versions.
    """

    time: int
    live: int
    parts: tuple[int, ...] = ()


class Memory(Record, frozen=True, kw_only=True):
    """Bytes of tensors during one step, exact where the allocator's events could be read.

    The parts are those alive at the peak and add up to it: `parameters`, `buffers`, `inputs`,
    `outputs`, `activations` (made in this step and outliving the operator that made them),
    `gradients`, `optimizer` (state) and `workspace` (all else that the allocator held).
    `tensors` are the same by name and shape, the largest first, and add up to `peak` as well.
    `before` is alive when the step begins, `after` when it has returned and its outputs are held:
    what is more then are outputs, gradients, caches, or a leak; None where it is not known.
    `average` is weighted by time, None where only the highest point was
    seen. `retained_for_backward` is what a training forward keeps
    beyond its outputs, None for inference. `per_sample` is (inputs + outputs + activations +
    workspace at the peak) ÷ batch size: an upper bound of what one more sample costs, since scratch
    and caches that do not grow with the batch are in it. `rss_peak` is the process's resident set
    at its highest during the same step without a recording, None where the system does not tell;
    `allocator_peak`, `reserved` (both at their highest) and `fragmentation` (after the step) are
    what the device's own allocator reports (CUDA). The timeline keeps every point up to 2,000;
    beyond, the lowest and highest of equal stretches of events. `peak_layer`, `peak_operator` and
    `peak_phase` are what was running when the peak was reached: the innermost layer, the outermost
    operator, and "forward", "backward" or "optimizer"; "" where none was, or it is not known.
    `grad_mode` is as in `TargetDescription`.
    """

    peak: int
    average: float | None
    parameters: int
    buffers: int
    inputs: int
    outputs: int
    activations: int
    gradients: int
    optimizer: int
    workspace: int
    step: Literal["inference", "training"]
    device: str
    method: str
    retained_for_backward: int | None = None
    per_sample: float | None = None
    rss_before: int | None = None
    rss_peak: int | None = None
    allocator_peak: int | None = None
    reserved: int | None = None
    fragmentation: Fragmentation | None = None
    before: int | None = None
    after: int | None = None
    tensors: tuple[AliveTensor, ...] = ()
    timeline: tuple[MemoryPoint, ...] = ()
    peak_layer: str = ""
    peak_operator: str = ""
    peak_phase: str = ""
    grad_mode: GradMode = "inference_mode"
    warnings: tuple[MeasurementWarning, ...] = ()
    how: How = "measured"

    @property
    def parts(self) -> dict[str, int]:
        """The parts alive at the peak by name, in bytes; their sum is `peak`."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def growth(self) -> int | None:
        """Bytes that the step leaves allocated beyond what was there before it."""
        if self.before is None or self.after is None:
            return None
        return self.after - self.before

    @property
    def rss_gap(self) -> int | None:
        """Resident bytes that no tensor explains: interpreter, libraries, their scratch space."""
        if self.rss_peak is None:
            return None
        return self.rss_peak - self.peak if self.device == "cpu" else None


class MemoryPart(Record, frozen=True, kw_only=True):
    """Bytes of one kind of tensor, and how they are known; `by_dtype` where that is known too."""

    bytes: int
    how: How
    by_dtype: dict[str, int] = msgspec.field(default_factory=dict)


class OptimizerMemory(Record, frozen=True, kw_only=True):
    """The states of one optimizer, and a whole step with it, in bytes.

    Attributes:
        states: What the optimizer keeps between steps.
        lower_bound: What the step holds at its end, or at the end of its forward pass, whichever
            is more: its peak is at least that.
        total: The most that is alive at once; None where it cannot be estimated.
        moment: The phase in which that is.
        at_peak: What is alive then, by part; adds up to `total`. "activations" were made in the
            forward pass, outputs among them; "workspace" is gradients of activations, what a
            checkpoint makes anew, scratch of kernels, temporaries of the optimizer.
    """

    states: MemoryPart
    lower_bound: int
    total: int | None = None
    moment: Literal["forward", "backward", "optimizer"] | None = None
    at_peak: dict[str, int] = msgspec.field(default_factory=dict)
    how: How = "estimated"


class TrainingMemory(Record, frozen=True, kw_only=True):
    """What a training step holds, by part, and by optimizer: `optimizer` is the one assumed.

    `gradients` is one per trainable parameter, in its dtype. `activations` is what is alive at the
    end of the forward pass beside parameters, buffers and inputs, as the CPU's or CUDA's kernels
    keep it (`kernels`). The parts are not all alive at once: `assumed.at_peak` is. In no figure are
    fragmentation and the driver's own memory.
    """

    parameters: MemoryPart
    buffers: MemoryPart
    inputs: MemoryPart
    gradients: MemoryPart
    activations: MemoryPart
    optimizers: dict[str, OptimizerMemory]
    optimizer: str
    kernels: Literal["cpu", "cuda"] = "cpu"

    @property
    def assumed(self) -> OptimizerMemory:
        """The step with the optimizer that is assumed."""
        return self.optimizers[self.optimizer]

    @property
    def parts(self) -> dict[str, MemoryPart]:
        """Every part at its largest, by name."""
        return {
            "parameters": self.parameters,
            "buffers": self.buffers,
            "inputs": self.inputs,
            "gradients": self.gradients,
            "states": self.assumed.states,
            "activations": self.activations,
        }
