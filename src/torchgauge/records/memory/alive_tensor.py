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
        phase: What the step did as it was made, in a watched loop; "unseen" where no operator of
            the stepping thread made it.
        line: The line that made it, "train.py:12"; of gradients that of the forward.
        step: The step of a watched loop that made it, from 1; 0 for what was there before.
        holder: What holds it in Python, as "losses[…] (list of 8) in main, train.py:9".
    """

    part: Part
    name: str
    size: int
    operator: str = ""
    count: int = 1
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    phase: str = ""
    line: str = ""
    step: int | None = None
    holder: str = ""
