"""A row of the tree: one node's own figures, without its children's."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import Record
from torchgauge.records.trace.kernel import Kernel
from torchgauge.records.work.roofline import Bound

Kind = Literal["model", "layer", "operator", "kernel", "bucket"]
Phase = Literal["", "forward", "backward", "recompute", "optimizer", "zero_grad", "outside"]


class TreeRow(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One node's own figures, without its children's: `parent` is its row, −1 for the root's.

    `path` is a layer's qualified name, `type` its class; `shapes` are an operator's input shapes,
    `dtype` is the type of its floating-point inputs, empty where unknown or not always the same.
    `host` and `device` are integer ns; `flops`, `bytes` and the bytes of memory are those of what
    the node did itself; `unknown` counts its calls without a formula, `calls_without_bytes` those
    whose bytes a recording does not tell, which then has none for the node. `allocations` are bytes
    allocated, `allocated` is that less bytes freed (torch's "Self CPU Mem"), `retained` what of it
    the forward pass left for the backward pass; `peak` the most that a call of a layer with all
    below it held at once beyond what was there, which does not add up. `parameters` are elements.
    `lower_bound` is the ns that a layer with its operators takes at least under the device's roofs,
    `bound` what it waits for with all below it. None is unknown. All are of one step, but in the
    tree of a trace that was recorded elsewhere: there of all its `Tree.steps`.
    """

    name: str
    kind: Kind
    parent: int
    calls: int
    path: str = ""
    type: str = ""
    phase: Phase = ""
    shapes: str = ""
    dtype: str = ""
    host: int | None = None
    device: int | None = None
    flops: int | None = None
    bytes: int | None = None
    allocated: int | None = None
    allocations: int | None = None
    peak: int | None = None
    retained: int | None = None
    parameters: int | None = None
    unknown: int = 0
    calls_without_bytes: int = 0
    lower_bound: int | None = None
    bound: Bound | None = None
    kernel: Kernel | None = None

    def __post_init__(self) -> None:
        """Check names alone: thousands of rows hold whole numbers."""
        if not (self.name.isascii() and self.path.isascii() and self.type.isascii()):
            super().__post_init__()
