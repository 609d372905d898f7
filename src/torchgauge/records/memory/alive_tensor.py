"""The tensors alive at the peak of a step."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import Record

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
