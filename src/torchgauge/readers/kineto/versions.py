"""Versions that a trace's header names, as people write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


def _cuda(number: int) -> str:
    """Return 12.4 of 12040, as CUDA_VERSION in cuda.h has it."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _hip(number: int) -> str:
    """Return 6.4.43483 of 60443483, as HIP_VERSION in hip_version.h has it."""
    return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"


# By the field of the header that has it.
NUMBERED: dict[str, tuple[str, Callable[[int], str]]] = {
    "cuda_runtime": ("CUDA", _cuda),
    "cuda_driver": ("CUDA driver", _cuda),
    "hip_runtime": ("HIP", _hip),
    "hip_driver": ("HIP driver", _hip),
}


def versions(
    numbers: Mapping[str, int | None], distributed: Mapping[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """Yield name and version of each that is known; `numbers` has those of the header's fields."""
    for field, (name, text) in NUMBERED.items():
        number = numbers.get(field)
        if number is not None and number > 0:
            yield name, text(number)
    nccl = (distributed or {}).get("nccl_version")
    if isinstance(nccl, str) and nccl:
        yield "NCCL", nccl
