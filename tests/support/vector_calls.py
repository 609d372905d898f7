"""Run an operator, and ask its formula for the work of that call."""

import torch

from torchgauge.formulas.registry import as_work
from torchgauge.measure.work.operators import operator

aten = torch.ops.aten


def work_of(overload, *args, **kwargs):
    """The work of one call, by the rule that the operator has."""
    outputs = overload(*args, **kwargs)
    return as_work(operator(overload).work(args, kwargs, outputs))


def vector_of(overload, *args, **kwargs):
    """The vector work of a call that does nothing else, exactly."""
    work = work_of(overload, *args, **kwargs)
    assert (work.matmul, work.integer, work.estimated) == (0, 0, False)
    return work.vector


def estimate_of(overload, *args, **kwargs):
    """The vector work of a call that only an estimate is known of."""
    work = work_of(overload, *args, **kwargs)
    assert work.estimated
    assert (work.matmul, work.integer) == (0, 0)
    return work.vector
