"""What a model and a process are like, seen without any code of torchgauge's.

The model by what pickle writes of it, module by module and attribute by attribute: whatever an
object holds, however nested, is in its bytes. The process by what Python and torch answer.
"""

from __future__ import annotations

import hashlib
import io
import locale
import logging
import os
import pickle
import random
import signal
import sys
import types
import warnings
from typing import Any

import numpy as np
import torch


class _Pickler(pickle.Pickler):
    """Writes tensors as their bytes, and what cannot be pickled as its identity."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return (str, (tensor(value),))
        if isinstance(value, torch.nn.Module | type | types.FunctionType | types.ModuleType):
            return (str, (f"{type(value).__name__} {id(value)}",))
        return NotImplemented


def tensor(value: torch.Tensor) -> str:
    """Return what there is to know of a tensor: object, place, form, and its bytes."""
    form = (id(value), tuple(value.shape), str(value.dtype), value.requires_grad, str(value.layout))
    try:
        plain = value.detach()
        plain = plain.dequantize() if plain.is_quantized else plain
        plain = plain.to_dense() if plain.layout is not torch.strided else plain
        content = plain.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        content = b""
    grad = None if not value.is_leaf or value.grad is None else id(value.grad)
    return f"{form} {grad} {hashlib.sha256(content).hexdigest()}"


def held(value: Any) -> str:
    """Return a digest of all that an object holds; its identity where it cannot be pickled."""
    if isinstance(value, dict):
        return str([(str(key), held(one)) for key, one in value.items()])
    if isinstance(value, list | tuple):
        return str([held(one) for one in value])
    stream = io.BytesIO()
    try:
        _Pickler(stream).dump(value)
    except Exception:  # noqa: BLE001 - whatever pickle meets
        return f"{type(value).__name__} {id(value)}"
    return hashlib.sha256(stream.getvalue()).hexdigest()


def model(given: Any) -> dict[str, str]:
    """Return what a model holds by attribute: of a module those of each below it."""
    if isinstance(given, type):
        return {}
    if not isinstance(given, torch.nn.Module):
        return {"state": held(vars(given))} if hasattr(given, "__dict__") else {}
    seen: dict[str, str] = {}
    left, done = [("", given)], set()
    while left:
        path, one = left.pop()
        if id(one) in done:
            continue
        done.add(id(one))
        seen[f"{path}: class"] = f"{type(one)} {id(type(one))}"
        for name, value in vars(one).items():
            if name == "_modules":
                left += [(f"{path}.{key}", child) for key, child in value.items() if child]
                seen[f"{path}.children"] = str([(key, id(child)) for key, child in value.items()])
            else:
                seen[f"{path}.{name}"] = held(value)
        for name, value in vars(type(one)).items():
            if not name.startswith("__") and not callable(value):
                seen[f"{path}: class's {name}"] = held(value)
    return seen


def process() -> dict[str, Any]:
    """Return the state of this process that a measurement may not change."""
    named = dict(logging.root.manager.loggerDict).values()
    loggers = [logging.root, *(logger for logger in named if isinstance(logger, logging.Logger))]
    return {
        "random": random.getstate(),
        "numpy random": str(np.random.get_state()[1].tobytes()) + str(np.random.get_state()[2:]),
        "torch random": torch.get_rng_state().numpy().tobytes(),
        "filters": list(warnings.filters),
        "showwarning": id(warnings.showwarning),
        "folder": os.getcwd(),  # noqa: PTH109
        "environment": dict(os.environ),
        "locale": locale.setlocale(locale.LC_ALL),
        "signals": [signal.getsignal(one) for one in sorted(signal.valid_signals())],
        "logging": {one.name: (one.level, list(one.handlers), one.disabled) for one in loggers},
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "defaults": (torch.get_default_dtype(), torch.get_default_device()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "threads of torch": torch.get_num_threads(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "call": id(torch.nn.Module.__call__),
        "hooks": [len(value) for name, value in vars(torch.nn.modules.module).items()
                  if name.startswith("_global_") and isinstance(value, dict)],
        "printing": (str(np.get_printoptions()), str(vars(torch._tensor_str.PRINT_OPTS))),
        "path": list(sys.path),
        "streams": (id(sys.stdout), id(sys.stderr)),
        "tracing": (sys.gettrace(), sys.getprofile()),
        "dispatch": torch._C._len_torch_dispatch_stack(),
    }  # fmt: skip


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names of what differs, appeared or is gone; a logger that is new is no change."""
    names = [name for name in (before | after) if name != "logging"]
    found = [one for one in names if before.get(one, "absent") != after.get(one, "absent")]
    for name, state in before.get("logging", {}).items():
        if after["logging"].get(name) != state:
            found.append(f"logger {name}")
    return found
