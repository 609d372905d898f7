"""Kinds of events, by the category that Kineto gives them."""

from __future__ import annotations

import re

PYTHON = "python_function"
MODULE_CALL = "nn.Module:"  # how the names of these begin that are calls of modules
# Functions that are kept without their stacks, as they keep the host from its work: gc.collect and
# Triton's tuning.
COLLECTION = "<built-in function collect>"
TUNING = re.compile(r"(.*/)?triton/runtime/autotuner\.py\(\d+\): _bench")
PYTHON_NAME = "$"  # the same of Python functions in a trace of JAX, which has no categories
PROTON_ARROW = "flow"
NPU_ARROW = "async_npu"
LAUNCH_ARROWS = frozenset(("ac2g", "async_cpu_to_gpu"))
ARROWS = LAUNCH_ARROWS | {"fwdbwd", "forward_backward", PROTON_ARROW, NPU_ARROW}
_RENAMED = {  # as versions before 2023 called them
    "Operator": "cpu_op",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
    "async_cpu_to_gpu": "ac2g",
    "forward_backward": "fwdbwd",
}
# Tables of spans' arguments, and the categories of each.
TABLES = ("operators", "launches", "device_work", "recorded_waits", "python", "unsorted")
_TABLES = {
    "cpu_op": "operators",
    "user_annotation": "operators",
    "gpu_user_annotation": "operators",
    "kernel": "device_work",
    "gpu_memcpy": "device_work",
    "gpu_memset": "device_work",
    "mtia_ccp_events": "device_work",
    "cuda_sync": "recorded_waits",
    PYTHON: "python",
    "": "unsorted",
}


def current_name(category: str) -> str:
    """Return what today's Kineto calls this category."""
    return _RENAMED.get(category, category)


def is_launch(category: str) -> bool:
    """Return whether spans of this category are calls of a device's runtime: cuda, xpu, mtia."""
    current = current_name(category)
    return current.endswith(("_runtime", "_driver")) or current == "hpu_op"


def table_of(category: str) -> str:
    """Return which table the arguments of this category belong to; empty where none."""
    if is_launch(category):
        return "launches"
    return _TABLES.get(current_name(category), "")


def is_kept_function(name: str) -> bool:
    """Return whether a Python function is kept where only the calls of modules are requested."""
    return name.startswith(MODULE_CALL) or name == COLLECTION or bool(TUNING.fullmatch(name))
