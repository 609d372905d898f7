"""Ask a formula for the work of a call on descriptions alone: nothing runs."""

from torchgauge.formulas.operand import Described
from torchgauge.formulas.registry import find


def described(*shape, dtype="float32"):
    return Described(shape, dtype)


def work(name, *args, outputs=None, **kwargs):
    """The work of a call, `outputs` passed where the formula wants it."""
    formula, wants_outputs = find(name)
    if wants_outputs:
        kwargs["outputs"] = outputs
    return formula(*args, **kwargs)


def macs(name, *args, outputs=None, **kwargs):
    """The multiply-accumulates of a call that does no other work."""
    found = work(name, *args, outputs=outputs, **kwargs)
    assert (found.vector, found.integer, found.estimated) == (0, 0, False)
    return found.matmul / 2
