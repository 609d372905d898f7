"""A moment at which a loop's memory ran out or nearly so, and what was alive then."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import How, Record

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


class OutOfMemory(Record, frozen=True, kw_only=True):
    """An allocation that failed, or memory near the limit at which the kernel kills.

    Attributes:
        device: Where: "cpu", "cuda:0".
        message: What torch or Python said, its first line; near a limit how near.
        requested: Bytes that were asked for; None where the message does not say.
        free: Bytes that could still be allocated; None where nothing tells.
        step: Steps that had ended before.
        layer: The layer that was running; "" for none, or where it is not known.
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
