"""The size of a model."""

from __future__ import annotations

from torchgauge.records.record import How, Record


class DtypeSize(Record, frozen=True, kw_only=True):
    """Elements and bytes of the parameters and buffers of one dtype."""

    elements: int
    bytes: int


class Size(Record, frozen=True, kw_only=True):
    """Parameters and bytes of a model, each tensor counted once however often it is used.

    Attributes:
        parameters: Elements of parameters.
        trainable: Elements of parameters that need a gradient.
        buffers: Elements of buffers.
        parameter_bytes: Bytes of parameters in memory.
        buffer_bytes: Bytes of buffers in memory.
        by_dtype: Both by element type.
        disk_bytes: The size of `disk_source`.
        disk_source: The files that were loaded, or the model's state dict written out.
        uninitialized: Names of lazy parameters without a shape; with any, the totals are lower
            bounds.
    """

    parameters: int
    trainable: int
    buffers: int
    parameter_bytes: int
    buffer_bytes: int
    by_dtype: dict[str, DtypeSize]
    disk_bytes: int | None = None
    disk_source: str = ""
    uninitialized: tuple[str, ...] = ()
    how: How = "counted"

    @property
    def bytes(self) -> int:
        """Bytes of parameters and buffers together."""
        return self.parameter_bytes + self.buffer_bytes

    @property
    def frozen(self) -> int:
        """Elements of parameters that need no gradient."""
        return self.parameters - self.trainable
