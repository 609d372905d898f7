"""Saves and restores the state of torch, Python and NumPy that a process or thread has."""

from __future__ import annotations

import gc
import locale
import logging
import os
import random
import signal
import sys
import threading
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from torchgauge import torch_private
from torchgauge.device import settings
from torchgauge.folders import current_folder
from torchgauge.signals import handler_of, run_all, set_handler
from torchgauge.targets.hygiene.recursion import recursion_limit, set_recursion_limit

# Nobody can set these two.
_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_States = tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...]


def save_process() -> Callable[[], None]:
    """Save modes, torch's settings, tracing, the environment; return a function that restores them.

    Grad mode, autocast's cache, anomaly detection, everything in `device.settings` (threads,
    default dtype and device, autocast, TF32, cuDNN, determinism), garbage collection, recursion
    limit, how NumPy and torch handle errors and print, trace and profile functions, tracemalloc,
    environment variables, working directory, locale, `sys.path`, signal handlers, loggers.
    """
    before = [(read, write, read()) for read, write in _STATES]
    torch_settings = settings.read()
    environment = dict(os.environ)

    def restore() -> None:
        run_all(
            [
                partial(_restore_environment, environment),
                *(partial(_restore_state, *state) for state in before),
                partial(_restore_settings, torch_settings),
            ]
        )

    return restore


def save_randomness() -> Callable[[], None]:
    """Save the generators' states: random, numpy, torch, and CUDA's where it is in use."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    # Asking a CUDA that nobody has used yet would initialise it: that is a change by itself.
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]

    def restore() -> None:
        run_all(
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


def _trace(frames: int) -> None:
    tracemalloc.stop()
    if frames:
        tracemalloc.start(frames)


def _go_back(folder: str | None) -> None:
    if folder is not None:
        os.chdir(folder)


def _handlers() -> list[tuple[int, Any]]:
    """Return what signals call, but for what was not set by Python; they are the main thread's."""
    if threading.current_thread() is not threading.main_thread():
        return []
    handlers = ((number, handler_of(number)) for number in _SIGNALS)
    return [(number, handler) for number, handler in handlers if handler is not None]


def _handle(handlers: list[tuple[int, Any]]) -> None:
    for number, handler in handlers:
        if handler_of(number) is not handler:
            set_handler(number, handler)


def _loggers() -> list[tuple[logging.Logger, int, bool, bool, tuple[Any, ...], tuple[Any, ...]]]:
    """Return what each logger does; one that a forward made has done nothing before."""
    loggers = (logger for logger in logging.root.manager.loggerDict.values())
    return [
        (
            logger,
            logger.level,
            logger.propagate,
            logger.disabled,
            (*logger.handlers,),
            (*logger.filters,),
        )
        for logger in (logging.root, *loggers)
        if isinstance(logger, logging.Logger)
    ]


def _log(before: list[tuple[logging.Logger, int, bool, bool, Any, Any]]) -> None:
    for logger, level, propagate, disabled, handlers, filters in before:
        if logger.level != level:
            logger.setLevel(level)
        logger.propagate, logger.disabled = propagate, disabled
        logger.handlers[:], logger.filters[:] = handlers, filters


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
    (gc.isenabled, lambda enabled: (gc.enable if enabled else gc.disable)()),
    (gc.get_threshold, lambda thresholds: gc.set_threshold(*thresholds)),
    (recursion_limit, set_recursion_limit),
    (np.geterr, lambda modes: np.seterr(**modes)),
    (np.get_printoptions, lambda options: np.set_printoptions(**options)),
    (lambda: vars(torch_private.print_options).copy(), vars(torch_private.print_options).update),
    (threading.gettrace, threading.settrace),
    (threading.getprofile, threading.setprofile),
    (sys.gettrace, sys.settrace),
    (sys.getprofile, sys.setprofile),
    (lambda: tracemalloc.get_traceback_limit() if tracemalloc.is_tracing() else 0, _trace),
    (current_folder, _go_back),
    (lambda: locale.setlocale(locale.LC_ALL), lambda text: locale.setlocale(locale.LC_ALL, text)),
    (lambda: [*sys.path], lambda path: sys.path.__setitem__(slice(None), path)),
    (_handlers, _handle),
    (_loggers, _log),
    (lambda: logging.root.manager.disable, logging.disable),
)
