"""The work of one counted call so far: by operator, and which work is unknown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from torchgauge.formulas.work import Work
from torchgauge.measure.arrays.members import Array
from torchgauge.measure.arrays.tracked import ArrayObserver
from torchgauge.records.work.cost import Cost, CostNode, CostRow


class _Sums(NamedTuple):
    calls: int = 0
    matmul: int = 0
    vector: int = 0
    integer: int = 0
    bytes: int = 0
    estimated: bool = False


class Tally(ArrayObserver):
    """The work of one call on one thread; `familiar` arrays were there before it.

    `unbatched` says that the first layer took one sample without a dimension for the batch.
    """

    def __init__(self, familiar: Callable[[], Iterable[Array]] = tuple) -> None:
        super().__init__(familiar)
        self.thread = threading.get_ident()
        self.unbatched: bool | None = None
        self.suspended = 0
        self._rows: dict[tuple[str, str], _Sums] = {}
        self._unknown: dict[str, int] = {}

    def add(self, operator: str, work: Work | None, dtype: Any, moved: int) -> None:
        """Add a call of an operator, `moved` bytes read and written; `work` None is unknown."""
        if self.suspended:
            return
        if work is None or np.dtype(dtype).kind not in "biufc":
            self.unknown(operator)
            return
        sums = self._rows.get((operator, str(dtype)), _Sums())
        self._rows[operator, str(dtype)] = _Sums(
            sums.calls + 1,
            sums.matmul + work.matmul,
            sums.vector + work.vector,
            sums.integer + work.integer,
            sums.bytes + moved,
            sums.estimated or work.estimated,
        )

    @property
    def counted(self) -> bool:
        """Whether any work was seen."""
        return bool(self._rows)

    def unknown(self, description: str) -> None:
        """Note work that is not known."""
        if not self.suspended:
            self._unknown[description] = self._unknown.get(description, 0) + 1

    def cost(self, name: str, kind: str, parameters: int) -> Cost:
        """Return the sums as a record, of one layer: the whole call."""
        node = CostNode(name=name, path="", kind=kind, parent=-1, calls=1, parameters=parameters)
        rows = [
            CostRow(
                node=0, operator=operator, phase="forward", dtype=dtype, calls=sums.calls,
                matmul_flops=sums.matmul, causal_matmul_flops=sums.matmul,
                vector_flops=sums.vector, integer_ops=sums.integer, bytes=sums.bytes,
                estimated=sums.estimated,
            )
            for (operator, dtype), sums in self._rows.items()
        ]  # fmt: skip
        rows += [
            CostRow(
                node=0,
                operator=description,
                phase="forward",
                dtype="",
                calls=calls,
                has_formula=False,
            )
            for description, calls in self._unknown.items()
        ]
        return Cost(nodes=(node,), rows=tuple(rows), backward=False, counted_on="numpy")
