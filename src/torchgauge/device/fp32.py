"""TF32: whether fp32 matrix products and convolutions may be rounded to its 10-bit mantissa.

torch has two interfaces to these switches, and reading the older one raises where the newer one
was used to write. The newer one can always be read; for writing the older one serves where it is
still readable, so that code which reads it goes on working.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchgauge.signals import restoring

TF32 = "tf32"
IEEE = "ieee"


def switches() -> tuple[str, str]:
    """Return how fp32 matrix products and convolutions are computed on a GPU: "ieee" or "tf32"."""
    matmul = torch.backends.cuda.matmul.fp32_precision
    convolution = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    return (TF32 if matmul == TF32 else IEEE), (TF32 if convolution == TF32 else IEEE)


@restoring
def tf32(*, allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 for a block, and put the switches back afterwards."""
    matmul = torch.backends.cuda.matmul
    convolution = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    try:
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:
        newer = matmul.fp32_precision, convolution.fp32_precision
        matmul.fp32_precision = convolution.fp32_precision = TF32 if allowed else IEEE
        try:
            yield
        finally:
            matmul.fp32_precision, convolution.fp32_precision = newer
        return
    matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
