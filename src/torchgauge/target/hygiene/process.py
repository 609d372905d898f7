"""What torch, Python and NumPy hold per process or thread."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from torchgauge.device import settings
from torchgauge.signals import every

_States = tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...]


def save_process() -> Callable[[], None]:
    """Save modes, torch's settings, tracing, the environment; return what puts back the differing.

    Grad mode, autocast's cache, anomaly detection, everything in `device.settings` (threads,
    default dtype and device, autocast, TF32, cuDNN, determinism), garbage collection, recursion
    limit, NumPy's error handling, trace and profile functions, tracemalloc, environment variables.
    """
    before = [(read, write, read()) for read, write in _STATES]
    told = settings.read()
    environment = dict(os.environ)

    def restore() -> None:
        every(
            [
                partial(_restore_environment, environment),
                *(partial(_restore_state, *state) for state in before),
                partial(_restore_settings, told),
            ]
        )

    return restore


def save_randomness() -> Callable[[], None]:
    """Save the generators' states: random, numpy, torch, and CUDA's where it is in use."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    # Asking a CUDA that nobody has used yet would initialise it: that is a change by itself.
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]

    def restore() -> None:
        every(
            [
                partial(random.setstate, python),
                partial(np.random.set_state, numpy),
                partial(torch.set_rng_state, cpu),
                *([partial(torch.cuda.set_rng_state_all, cuda)] if cuda else []),
            ]
        )

    return restore


def _restore_state(read: Callable[[], Any], write: Callable[[Any], object], before: Any) -> None:
    if read() != before:
        write(before)


def _restore_settings(before: dict[str, Any]) -> None:
    if settings.read() != before:
        settings.apply(before)


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _traced() -> int:
    return tracemalloc.get_traceback_limit() if tracemalloc.is_tracing() else 0


def _trace(frames: int) -> None:
    tracemalloc.stop()
    if frames:
        tracemalloc.start(frames)


def _collect(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()


def _restore_environment(before: dict[str, str]) -> None:
    if os.environ == before:
        return
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


_STATES: _States = (
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (_anomaly, lambda modes: torch.set_anomaly_enabled(*modes)),
    (gc.isenabled, _collect),
    (gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (np.geterr, lambda modes: np.seterr(**modes)),
    (threading.gettrace, threading.settrace),
    (threading.getprofile, threading.setprofile),
    (sys.gettrace, sys.settrace),
    (sys.getprofile, sys.setprofile),
    (_traced, _trace),
)
