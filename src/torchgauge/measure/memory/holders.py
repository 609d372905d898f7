"""The variables through which a program holds tensors, and the line of it that runs."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import torch

from torchgauge.imports import modules_with_files
from torchgauge.measure.lines.line_samples import kind_of
from torchgauge.measure.memory.live_tensors import locals_of, saved_for_backward
from torchgauge.targets.contents.walk import Walk, attributes_of

_kind = functools.cache(kind_of)
_CONTAINERS = ("builtins", "collections", "torch")


def held() -> Iterator[tuple[tuple[str, str, bool], torch.Tensor]]:
    """Yield tensors with the variable that holds them, then those that the graphs of these hold.

    A holder is a variable, the function, module or class that has it, and whether by its graph.
    Not found is what C code holds, a library's module or a cache of functools.
    """
    walk = Walk(functions=True)
    named = [
        (_path(entry.path), owner, entry.item)
        for _, owner, name, value in sorted(_variables(), key=lambda variable: variable[0])
        for entry in walk(value, name)
        if issubclass(type(entry.item), torch.Tensor)
    ]
    for name, owner, tensor in named:
        yield (name, owner, False), tensor
    visited: set[Any] = set()
    for name, owner, tensor in named:
        for _, saved in saved_for_backward([tensor], visited):
            yield (name, owner, True), saved


def program_line() -> str:
    """Return the innermost line of the program, "train.py:12"; "" where none runs."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no public way
    while frame is not None and _kind(frame.f_code.co_filename) != "user's":
        frame = frame.f_back
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _path(names: tuple[str, ...]) -> str:
    """Return keys and names as an expression: "model.caches[3]"."""
    first, *inner_names = (name for name in names if name)
    return first + "".join(f"[{name}]" if name.isdecimal() else f".{name}" for name in inner_names)


def _variables() -> Iterator[tuple[tuple[int, int], str, str, Any]]:
    """Yield variables with their order, and the function, module or class that has them.

    First come those of the program's functions that run, then its modules, its classes and their
    objects, then libraries' functions; in each tensors and containers, and last what functions
    close over.
    """

    def variables(rank: int, owner: str, items: Iterable[tuple[str, Any]]) -> Iterator[Any]:
        for name, value in list(items):
            kind = type(value)
            level = 2 if kind is FunctionType else kind.__module__ not in _CONTAINERS
            yield (rank, level), owner, name, value

    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        code, owned_by = frame.f_code, _kind(frame.f_code.co_filename)
        owner = f"{code.co_qualname}, {Path(code.co_filename).name}:{code.co_firstlineno}"
        owner = Path(code.co_filename).name if code.co_name == "<module>" else owner
        if owned_by != "ours":
            yield from variables(2 * (owned_by != "user's"), owner, locals_of(frame))
        frame = frame.f_back
    classes: list[type] = []
    for _, members, file in modules_with_files():
        if _kind(file) == "user's":
            yield from variables(1, members["__name__"], members.items())
            own = (kind for kind in members.values() if issubclass(type(kind), type))
            classes += (kind for kind in own if kind.__module__ == members["__name__"])
    for kind in classes:
        yield from variables(1, kind.__qualname__, vars(kind).items())
    for item in gc.get_referrers(*classes) if classes else ():
        if type(item) in classes:
            yield from variables(1, type(item).__qualname__, (attributes_of(item) or {}).items())
