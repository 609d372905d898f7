"""Everything a profiler could leave changed, read without any of torchgauge's code.

`snapshot` returns one entry per thing, with a value that compares by ==; `differences` names those
that are not as they were. Nothing is read through what is being judged: tensors by their bytes,
functions by identity, files and processes from the operating system.
"""

from __future__ import annotations

import gc
import inspect
import os
import random
import signal
import sys
import tempfile
import threading
import tracemalloc
import warnings
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import torch
import torch.nn.functional

MODULES: tuple[ModuleType, ...] = (torch, torch.nn.functional, torch.linalg, torch.fft)
CLASSES: tuple[type, ...] = (torch.Tensor, torch.nn.Module)


def snapshot(model: Any, inputs: Any = ()) -> dict[str, Any]:
    """Return the state of a model, of the tensors in `inputs` and of this process."""
    seen: dict[str, Any] = {}
    if isinstance(model, torch.nn.Module):
        _module(model, seen)
    for index, tensor in enumerate(inputs):
        seen[f"input {index}"] = _tensor(tensor)
    _torch(seen)
    _python(seen)
    _system(seen)
    return seen


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names of entries that differ, appeared or went."""
    names = dict.fromkeys((*before, *after))
    return [n for n in names if n not in before or n not in after or before[n] != after[n]]


def _module(model: torch.nn.Module, seen: dict[str, Any]) -> None:
    seen["state dict keys"] = list(model.state_dict())
    seen["submodules"] = [(name, id(module)) for name, module in model.named_modules()]
    for name, parameter in model.named_parameters(remove_duplicate=False):
        seen[f"parameter {name}"] = _tensor(parameter)
        seen[f"requires_grad {name}"] = parameter.requires_grad
        seen[f"grad {name}"] = None if parameter.grad is None else _tensor(parameter.grad)
        seen[f"tensor hooks {name}"] = len(parameter._backward_hooks or ())
    for name, buffer in model.named_buffers(remove_duplicate=False):
        seen[f"buffer {name}"] = _tensor(buffer)
    for name, module in model.named_modules():
        seen[f"training {name}"] = module.training
        for key, value in list(vars(module).items()):
            if key == "training":
                continue
            kind = "hooks" if "_hooks" in key else "attribute"
            seen[f"{kind} {name}.{key}"] = _shallow(value)
    for kind in {type(module) for module in model.modules()}:
        names = [key for key, value in vars(kind).items() if callable(value)]
        seen[f"methods {kind.__qualname__}"] = [(key, id(vars(kind)[key])) for key in names]


def _tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    whole = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    place = (id(tensor), tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
    return (*place, str(tensor.device), zlib.crc32(whole), tensor.is_inference())


def _shallow(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, id(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [id(item) for item in value]
    if isinstance(value, set):
        return sorted(map(id, value))
    return id(value) if not isinstance(value, bool | int | float | str | None) else value


def _torch(seen: dict[str, Any]) -> None:
    for owner in MODULES:
        for name, value in vars(owner).items():
            if callable(value):
                seen[f"function {owner.__name__}.{name}"] = id(value)
    for kind in CLASSES:
        for name in dir(kind):
            value = inspect.getattr_static(kind, name)
            if callable(value) or isinstance(value, property | staticmethod | classmethod):
                seen[f"method {kind.__name__}.{name}"] = id(value)
    hooks = vars(torch.nn.modules.module)
    for name in hooks:
        if name.startswith("_global_"):
            seen[f"hooks of all modules {name}"] = _shallow(hooks[name])
    _modes(seen)
    seen["torch random state"] = zlib.crc32(torch.get_rng_state().numpy())
    seen["CUDA in use"] = torch.cuda.is_initialized()
    if torch.cuda.is_initialized():
        states = torch.cuda.get_rng_state_all()
        seen["CUDA random states"] = [zlib.crc32(state.numpy()) for state in states]
        seen["CUDA device"] = torch.cuda.current_device()
        seen["allocator settings"] = torch.cuda.memory._snapshot()["allocator_settings"]


def _modes(seen: dict[str, Any]) -> None:
    seen["default dtype"] = torch.get_default_dtype()
    seen["default device"] = torch.get_default_device()
    seen["grad mode"] = torch.is_grad_enabled()
    seen["inference mode"] = torch.is_inference_mode_enabled()
    for kind in ("cpu", "cuda"):
        enabled, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        seen[f"autocast {kind}"] = (enabled, dtype)
    seen["autocast cache"] = torch.is_autocast_cache_enabled()
    seen["anomaly"] = (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())
    seen["deterministic"] = torch.get_deterministic_debug_mode()
    seen["matmul precision"] = torch.get_float32_matmul_precision()
    backends = torch.backends
    seen["cudnn"] = (
        backends.cudnn.enabled,
        backends.cudnn.benchmark,
        backends.cudnn.deterministic,
        backends.cudnn.allow_tf32,
    )
    seen["mkldnn"] = backends.mkldnn.enabled
    seen["attention kernels"] = (
        backends.cuda.flash_sdp_enabled(),
        backends.cuda.math_sdp_enabled(),
    )
    seen["torch threads"] = (torch.get_num_threads(), torch.get_num_interop_threads())
    stacks = torch._C
    seen["dispatch modes"] = stacks._len_torch_dispatch_stack()
    seen["function modes"] = stacks._len_torch_function_stack()
    seen["profiler"] = torch._C._autograd._profiler_enabled()


def _python(seen: dict[str, Any]) -> None:
    seen["random state"] = random.getstate()
    seen["numpy random state"] = str(np.random.get_state())
    seen["numpy errors"] = np.geterr()
    seen["warnings filters"] = list(warnings.filters)
    seen["showwarning"] = id(warnings.showwarning)
    seen["trace function"] = id(sys.gettrace())
    seen["profile function"] = id(sys.getprofile())
    seen["trace function of threads"] = id(threading.gettrace())
    seen["profile function of threads"] = id(threading.getprofile())
    seen["tracemalloc"] = tracemalloc.is_tracing()
    seen["garbage collection"] = (gc.isenabled(), gc.get_threshold(), len(gc.callbacks))
    seen["recursion limit"] = sys.getrecursionlimit()
    seen["streams"] = (id(sys.stdout), id(sys.stderr), id(sys.stdin))
    seen["except hooks"] = (id(sys.excepthook), id(threading.excepthook))
    seen["signals"] = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    seen["threads"] = sorted(thread.ident or 0 for thread in threading.enumerate())


def _system(seen: dict[str, Any]) -> None:
    seen["environment"] = dict(os.environ)
    seen["working directory"] = str(Path.cwd())
    files = {}
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - closed again before it is read
        try:
            files[entry] = os.readlink(f"/proc/self/fd/{entry}")  # noqa: PTH115
        except OSError:
            continue
    seen["open files"] = files
    seen["child processes"] = sorted(p.pid for p in psutil.Process().children(recursive=True))
    seen["temporary files"] = sorted(map(str, Path(tempfile.gettempdir()).glob("torchgauge-*")))
