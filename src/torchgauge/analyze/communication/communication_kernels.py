"""Which kernels communicate, and which collective each is, by the names that libraries give them.

A kernel of a library that is not here counts as computation unless the recording has the arguments
of a collective for it.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple


class _Library(NamedTuple):
    """A library's names of kernels: the collective is `name`, else the pattern's group."""

    pattern: re.Pattern[str]
    name: str = ""


_SHAPES = "all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?all"
# In this order. Namespaces and template arguments stand around the names.
_LIBRARIES = (
    _Library(re.compile(r"(?:nccl|rccl)(?:Dev)?Kernel_?([A-Za-z]+)", re.IGNORECASE)),
    _Library(re.compile(r"nccl|rccl", re.IGNORECASE), "unknown"),
    # vLLM, SGLang and AITER: all-reduce through the peers' memory
    _Library(re.compile(r"\bcross_device_reduce_|\d+cross_device_reduce_"), "allreduce"),
    # DeepEP: tokens to their experts and back
    _Library(re.compile(r"\bdeep_ep::\w+::(\w+)")),
    # torch's symmetric memory
    _Library(re.compile(rf"(?:multimem|one_shot|two_shot)_(?:one_shot_)?({_SHAPES})\w*_kernel")),
    # FlashInfer and TensorRT-LLM
    _Library(re.compile(r"allreduce_fusion_kernel|(?:one|two)ShotAllReduceKernel"), "allreduce"),
    _Library(re.compile(rf"mscclpp\w*::(?:\w+::)*({_SHAPES})", re.IGNORECASE)),
    _Library(re.compile(r"mscclpp"), "unknown"),
    _Library(re.compile(r"\bnvshmem\w*?_((?:all)?(?:reduce|gather|toall)|broadcast|put|get)")),
    _Library(re.compile(r"\bnvshmem"), "unknown"),
    # Ascend
    _Library(re.compile(r"\bhcom_([A-Za-z]+)")),
    # oneCCL
    _Library(re.compile(rf"\b(?:one)?ccl_?(?:\w+_)?({_SHAPES})", re.IGNORECASE)),
)


@functools.lru_cache(4096)
def collective_of(kernel: str) -> str | None:
    """Return the collective as the kernel's name spells it, "unknown" where it does not say.

    None of a kernel that does not communicate.
    """
    for pattern, name in _LIBRARIES:
        match = pattern.search(kernel)
        if match:
            return name or match[1]
    return None


@functools.lru_cache(4096)
def collective_name(recorded_name: str | None, kernel: str) -> str:
    """Return the canonical name: "allgather" for "_allgather_base" and "AllGather"."""
    text = recorded_name or collective_of(kernel) or "unknown"
    short = text.lower().removeprefix("nccl:").replace("_base", "").replace("_coalesced", "")
    return short.replace("_", "").replace("generic", "") or "unknown"
