"""Profilers of others that are active in this process, by name."""

from __future__ import annotations

import gc
import os
import sys

import torch
from torch._C._autograd import _profiler_enabled, _profiler_type
from torch.autograd import profiler

# Nsight Systems sets it in the process that it watches.
_NSYS = "NSYS_PROFILING_SESSION_ID"


def recorder() -> str | None:
    """Return the name of the torch profiler that records now; None where there is none.

    Two of them cannot record at once: starting the second would end the first silently.
    """
    if not (_profiler_enabled() or profiler._is_profiler_enabled):  # noqa: SLF001 (no public way)
        return None
    kind = str(_profiler_type()).rpartition(".")[2]
    if kind == "NVTX":
        return "torch.autograd.profiler.emit_nvtx"
    if kind == "ITT":
        return "torch.autograd.profiler.emit_itt"
    for gc_object in gc.get_objects():
        if type(gc_object) is torch.profiler.profile and _records(gc_object.profiler):
            return "torch.profiler.profile"
    return "torch.autograd.profiler.profile"


def _records(inner: object) -> bool:
    return bool(getattr(inner, "entered", False)) and getattr(inner, "kineto_results", None) is None


def slowing() -> list[str]:
    """Return the names of what else watches this process and changes its times."""
    profilers = []
    hook = sys.getprofile()
    if hook is not None:
        profilers.append(
            f"{type(hook).__module__}.{type(hook).__qualname__}, set by sys.setprofile"
        )
    trace = sys.gettrace()
    if trace is not None:
        profilers.append(
            f"{type(trace).__module__}.{type(trace).__qualname__}, set by sys.settrace"
        )
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12
    if monitoring is not None:
        names = (monitoring.get_tool(number) for number in range(6))
        profilers += [f"{name}, by sys.monitoring" for name in names if name]
    if _NSYS in os.environ:
        profilers.append("Nsight Systems (nsys)")
    return profilers
