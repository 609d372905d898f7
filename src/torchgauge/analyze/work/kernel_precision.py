"""The type that a kernel computes in, and whether on Tensor Cores, as far as its name says.

Names of cuBLAS, cuDNN and CUTLASS have both, those of rocBLAS and hipBLASLt letters for types,
"nvjet" a letter each for A, B and the result. A name that says nothing is unknown.
"""

from __future__ import annotations

import functools
import re
from typing import Literal, get_args

Precision = Literal["fp8", "int8", "bf16", "fp16", "tf32", "fp32", "fp64"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
# The types of `Roofs.peaks`.
DTYPES: dict[Precision, str] = {
    "fp8": "float8", "int8": "int8", "bf16": "bfloat16", "fp16": "float16", "tf32": "tf32",
    "fp32": "float32", "fp64": "float64",
}  # fmt: skip

LONGEST_READ = 1_000  # characters; of longer names the rest is left
# In this order: results and sums are often of a wider type than what is multiplied.
_TYPES: tuple[tuple[Precision, str], ...] = (
    ("fp8", r"e4m3|e5m2|fp8|float8|nvjet_\w*qq"),
    ("int8", r"i8816|i16832|int8|imma|(?<![a-z0-9])i8i8|Cijk_\w*?_I8"),
    ("bf16", r"bf16|bfloat16|nvjet_[a-z]*t[a-z]*_|Cijk_[A-Z]\w*?_B[BS]?[BS]_"),
    ("fp16", r"fp16|(?<![b0-9a-z])f16|half|h884|h1688|h16816|hgemm|nvjet_[a-z]*h[a-z]*_"
             r"|Cijk_[A-Z]\w*?_H[HS]?[HS]_"),
    ("tf32", r"tf32|tfloat32|s1688(?:gemm|cudnn|_)|Cijk_\w*?_S_?X"),
    ("fp64", r"fp64|f64|double|dgemm|d884|Cijk_\w*?_D?DB?_"),
    ("fp32", r"fp32|f32|sgemm|float|scudnn|sss_|Cijk_\w*?_S?SB?_"),
)  # fmt: skip
_PRECISIONS = [(name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _TYPES]
_TENSOR_CORES = re.compile(
    r"tensorop_|tensor16x8|wmma|xdlops|gtcx\d|mfma|[a-z](?:884|1688|16816|16832|8816)(?:gemm|cudnn|_|fprop|dgrad|wgrad)"
    r"|hmma|imma|gmma|mma_sync|nvjet|flash_(?:fwd|bwd)|fmha|FlashAttn|_MI\d+x\d+"
    r"|xmma_\w*?(?:tf32|bf16|(?<![b0-9a-z])f16|i8)",
    re.IGNORECASE,
)
_NO_TENSOR_CORES = re.compile(
    r"simt|(?:ampere|volta|turing|maxwell|pascal|hopper)_(?:s|d|c|z)gemm|scudnn|gemv|splitKreduce"
    r"|xmma_\w*?f32f32_f32f32",
    re.IGNORECASE,
)


@functools.lru_cache(8192)
def precision(name: str) -> Precision | None:
    """Return the type of what a kernel multiplies or reads, by its name; None where unknown."""
    name = name[:LONGEST_READ]
    return next((of_name for of_name, pattern in _PRECISIONS if pattern.search(name)), None)


@functools.lru_cache(8192)
def on_tensor_cores(name: str) -> bool | None:
    """Return whether a kernel computes on Tensor Cores (AMD: Matrix Cores); None where unknown."""
    name = name[:LONGEST_READ]
    if _NO_TENSOR_CORES.search(name):
        return False
    return True if _TENSOR_CORES.search(name) else None
