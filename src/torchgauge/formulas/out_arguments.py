"""The arguments that a recorded call wrote: a trace has them behind those that it read."""

from __future__ import annotations

from typing import Any

from torchgauge.formulas.free import aten
from torchgauge.formulas.kinds import POINTWISE
from torchgauge.formulas.operand import Described
from torchgauge.formulas.written import elementwise_inputs

# How many arguments end with a tensor that is read; in all others a tensor at the end is `out=`.
_READS_TO_THE_END = {
    **dict.fromkeys(aten("mm bmm max min _adaptive_avg_pool2d_backward silu_backward "
                          "mish_backward hardswish_backward hardsigmoid_backward"), 2),
    **dict.fromkeys(aten("where index_select"), 3),
    **dict.fromkeys(aten("max_pool2d_with_indices_backward max_pool3d_with_indices_backward"), 8),
    "aten::elu_backward": 6,
    "aten::cudnn_batch_norm_backward": 9,
}  # fmt: skip


def without_out(name: str, operands: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the arguments that a call reads, and those of `out=`, which stand behind them."""
    count = read = len(operands)
    if name in POINTWISE:
        read = elementwise_inputs(name)
    elif not name.endswith("_"):
        read = _READS_TO_THE_END.get(name, 1)
    while count > read and isinstance(operands[count - 1], Described):
        count -= 1
    return operands[:count], operands[count:]
