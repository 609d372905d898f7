"""Translate what the user's code raises into ModelErrors."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import torch

from torchgauge import torch_private, units
from torchgauge.device.counters import data_segment, memory_available
from torchgauge.errors import SAME_CALL, ModelError, by_operator, text_of
from torchgauge.forks import Owner, translating
from torchgauge.measure.work.internals import backward_code
from torchgauge.quantities import reported_size
from torchgauge.records.memory.memory import RunningPhase
from torchgauge.targets.hygiene.recursion import recursion_limit

if TYPE_CHECKING:
    from torchgauge.targets.builds.source import Source
    from torchgauge.targets.placement import Placement


_LOADING = inspect.getfile(torch.utils.data.DataLoader)
_OPTIMIZING = inspect.getfile(torch.optim.Optimizer)
# torch says in its error what a process may take of a GPU, where that is less than all.
_ALLOWED = " allowed"


class MemoryLimit(NamedTuple):
    """Bytes that the process may allocate in all, and how many of them are left."""

    limit: int
    remaining: int


def process_limit(device: str, error_text: str) -> MemoryLimit | None:
    """Return the limit of the process on `device`, None where there is none or it is not known.

    `error_text` is torch's error. On the CPU it is the limit of the data segment, which Linux
    counts all allocations against.
    """
    try:
        if torch.device(device).type == "cuda":
            limit = reported_size(error_text, after=_ALLOWED)
            if limit is None:
                return None
            return MemoryLimit(limit, limit - torch.cuda.memory_reserved(device))
        if torch.device(device).type == "cpu" and sys.platform == "linux":
            import resource

            limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
            used = data_segment()
            if limit == resource.RLIM_INFINITY or used is None:
                return None
            return MemoryLimit(limit, limit - used)
    except (RuntimeError, AssertionError, ValueError, OSError):
        return None
    return None


WITHOUT_VALUES = (
    "Tensors on meta have no values: where the code reads one, give the model and its inputs on "
    "the CPU (--device cpu)."
)
# From what a model raised to what should change about its inputs, "" where nothing does.
Misfit = Callable[[BaseException], str]
_CPU_MEMORY = re.compile(r"can't allocate memory|not enough memory", re.IGNORECASE)
_REQUESTED = "tried to allocate "
_PRECISION = re.compile(r"not implemented for '(Half|BFloat16|Float8\w*)'")


@contextlib.contextmanager
def running(
    device: str = "cpu", subject: str = "The model's forward", misfit: Misfit | None = None
) -> Iterator[None]:
    """Turn what the code inside raises into a ModelError, the original as its cause.

    Ids: `out-of-memory` (with bytes asked for, and what is free or the process is held to),
    `precision-unsupported`, `model-exited`, `recursion-limit`, else `forward-raised`. Errors of
    torchgauge itself and interruptions pass through, and all in a process that the code forked.
    """
    owner = Owner()
    with translating(functools.partial(translated, device=device, subject=subject, misfit=misfit)):
        yield
    owner.end_fork()


def opened(source: Source) -> Placement:
    """Load and place the target; raises as `running` does."""
    with running(source.device or "cpu", "Loading the model"):
        return source.open()


def translated(
    error: BaseException, device: str, subject: str, misfit: Misfit | None = None
) -> ModelError:
    """Return the error of torchgauge's that says what `error`, raised by `subject`, means.

    `misfit` returns what it tells about the inputs.
    """
    text = cause = text_of(error)
    if layer := raising_layer(error):
        cause = f"In {layer}: {cause}"
    if isinstance(error, SystemExit):
        return ModelError(
            f"{subject} called exit().",
            id="model-exited",
            cause=cause,
            remedy="Let it return its outputs, or raise an error that says what is wrong.",
        )
    if isinstance(error, RecursionError):
        return ModelError(
            f"{subject} recursed deeper than Python allows.",
            id="recursion-limit",
            cause=f"The limit is {recursion_limit():,} calls. {cause}",
            remedy="Where modules are nested that deep, call sys.setrecursionlimit() in the file "
            "that makes the model; else look for a call without an end.",
        )
    if is_out_of_memory(error, text):
        room, alternative = _room(device, text)
        return ModelError(
            f"Memory ran out on {device}.",
            id="out-of-memory",
            cause=f"{_requested(text)}, {room}. {cause}",
            remedy=f"Use a smaller batch or input, a lower precision, or {alternative}.",
        )
    if match := _PRECISION.search(text):
        return ModelError(
            f"An operator of the model does not exist in {match[1].lower()} on {device}.",
            id="precision-unsupported",
            cause=cause,
            remedy="Use another precision (float32 always works), or another device.",
        )
    remedy = (misfit is not None and misfit(error)) or SAME_CALL
    if device == "meta" and by_operator(error):
        remedy = f"{WITHOUT_VALUES} {remedy}"
    return ModelError(
        f"{subject} raised {type(error).__name__}.", id="forward-raised", cause=cause, remedy=remedy
    )


def frames_of(error: BaseException) -> list[FrameType]:
    """Return the frames that an error passed through, the innermost last."""
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def raising_layer(error: BaseException) -> str:
    """Return the innermost module that raised; see `running_layer`."""
    return running_layer(frames_of(error))


def running_layer(frames: Sequence[FrameType]) -> str:
    """Return the innermost module in frames, as `layer1.0.conv1 (Conv2d)`; "" where none is.

    Its name is the one in the outermost module that was running.
    """
    owners = [frame.f_locals.get("self") for frame in frames]
    running = [owner for owner in owners if isinstance(owner, torch.nn.Module)]
    if not running:
        return ""
    kind = type(running[-1]).__name__
    try:
        names = {id(module): name for name, module in running[0].named_modules()}
    except Exception:  # noqa: BLE001 - RecursionError; TypeError of modules without a hash
        return kind
    name = names.get(id(running[-1]))
    return f"{name} ({kind})" if name else kind


def running_phase(frames: Sequence[FrameType]) -> RunningPhase:
    """Return what the innermost of the frames, the last, is a part of.

    A module that a backward pass calls is run again, and what a data loader's iterator calls is
    loading.
    """
    phase: RunningPhase = "outside"
    for frame in frames:
        code = frame.f_code
        if code.co_filename == _LOADING:
            return "loading"
        if code is backward_code:
            phase = "backward"
        elif code.co_filename == _OPTIMIZING:
            phase = "optimizer"
        elif code is torch_private.module_call.__code__:
            phase = "recompute" if phase in ("backward", "recompute") else "forward"
    return phase


def is_out_of_memory(error: BaseException, text: str) -> bool:
    """Return whether the error, of this text, says that memory ran out."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and bool(_CPU_MEMORY.search(text))


def requested_bytes(text: str) -> int | None:
    """Return the bytes that could not be allocated, by the error's text."""
    return reported_size(text, before=_REQUESTED)


def _requested(text: str) -> str:
    requested = requested_bytes(text)
    if requested is None:
        return "The requested size is not known"
    return f"{units.size(requested)} were requested"


def _room(device: str, text: str) -> tuple[str, str]:
    """Return what the allocation did not fit into, and what to use instead."""
    free, limit = free_bytes(device), process_limit(device, text)
    if limit is not None and (free is None or limit.remaining < free):
        return f"the process is held to {units.size(limit.limit)}", "a higher limit"
    return f"{units.size(free)} are free", "a larger device"


def free_bytes(device: str) -> int | None:
    """Return the bytes an allocation on `device` could still get, None where nothing tells.

    It is asked while an error is being reported: a GPU after a failed assertion raises on anything.
    """
    try:
        kind = torch.device(device).type
        if kind == "cpu":
            return memory_available()
        if kind == "cuda" and torch.cuda.is_available():
            return int(torch.cuda.mem_get_info(device)[0])
    except (RuntimeError, AssertionError, ValueError, OSError):
        return None
    return None
