"""What the installed torch has of what some versions have not."""

import pytest
import torch


def has_operator(name):
    """Whether an operator such as "aten::linalg_polar" exists."""
    return torch._C._dispatch_has_kernel(name)


def needs_operator(name):
    """Return the mark of a test that is skipped where the operator does not exist."""
    reason = f"torch {torch.__version__} has no {name}"
    return pytest.mark.skipif(not has_operator(name), reason=reason)
