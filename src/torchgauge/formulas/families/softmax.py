"""Softmax and its kin, by the arithmetic of each element.

Forward, numerically safe: a comparison for the maximum, a subtraction, an exponential, an addition
for the sum, and a division (log-softmax: a subtraction of the logarithm).
"""

from __future__ import annotations

from typing import Any

from torchgauge.formulas.families.per_element import per_element
from torchgauge.formulas.operand import Operand, Work, elements_of, vector
from torchgauge.formulas.registry import formula

FORWARD, BACKWARD, LOG_OF_SUM = 5, 4, 4


@formula(
    "aten::_softmax",
    "aten::_log_softmax",
    "aten::_safe_softmax",
    "aten::_masked_softmax",
    "aten::_sparse_softmax",
    "aten::_sparse_log_softmax",
    "aten::_nested_tensor_softmax_with_shape",
    "aten::softmax",
    "aten::log_softmax",
)
def softmax(operand: Operand, *_args: Any, **_named: Any) -> Work:
    """Five per element: maximum, subtraction, exponential, sum, division."""
    return vector(FORWARD * elements_of(operand), operand)


# Four per element: a sum over the row, an exponential or product, a product, a subtraction.
per_element(
    __name__,
    BACKWARD,
    "aten::_softmax_backward_data",
    "aten::_log_softmax_backward_data",
    "aten::_masked_softmax_backward",
    "aten::_sparse_softmax_backward_data",
    "aten::_sparse_log_softmax_backward_data",
    counted=1,
)
# Four per element: maximum, subtraction, exponential, sum.
per_element(__name__, LOG_OF_SUM, "aten::logsumexp", "aten::logcumsumexp", "aten::_logcumsumexp")
