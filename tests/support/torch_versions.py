"""What the versions of torch that we are tested with have, where they differ."""

import pytest
import torch

from torchgauge.version import torch_release

RELEASE = torch_release()

# Operators that we know by name and not every version has: the first that has it, and the first
# that has it no more.
OPERATORS = {
    "aten::_flash_attention_forward_no_dropout_inplace": ((2, 12), None),
    "aten::_foreach_clone": ((2, 12), None),
    "aten::_philox_key_fold_in": ((2, 12), None),
    "aten::_philox_key_split": ((2, 12), None),
    "aten::_philox_normal": ((2, 12), None),
    "aten::_philox_uniform": ((2, 12), None),
    "aten::_upsample_lanczos2d_aa": ((2, 12), None),
    "aten::_upsample_lanczos2d_aa_backward": ((2, 12), None),
    "aten::cholesky": (None, (2, 14)),
    "aten::linalg_matrix_sqrth": ((2, 14), None),
    "aten::linalg_polar": ((2, 14), None),
    "aten::shallow_copy_data": ((2, 14), None),
}

# scan calls its function once more, for the shapes of what it returns.
SCAN_CALLS_MORE = RELEASE < (2, 12)


def has_operator(name):
    """Whether this torch has an operator that we know, such as "aten::linalg_polar"."""
    since, until = OPERATORS.get(name, (None, None))
    return (since is None or since <= RELEASE) and (until is None or until > RELEASE)


def since(*release):
    """Return the mark of a test of what a torch has that is this new."""
    text = ".".join(map(str, release))
    return pytest.mark.skipif(release > RELEASE, reason=f"torch has it since {text}")


def needs_operator(name):
    """Return the mark of a test that is skipped where the operator does not exist."""
    reason = f"torch {torch.__version__} has no {name}"
    return pytest.mark.skipif(not has_operator(name), reason=reason)
