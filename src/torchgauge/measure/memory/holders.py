"""The variable, attribute or closure through which Python holds an object, and where it is."""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from torchgauge.measure.lines.line_samples import kind_of
from torchgauge.measure.work.internals import CHECKPOINT, backward_code, node_number

DEPTH = 6
MOST_NODES = 200_000
_SEQUENCES = (list, tuple, set, frozenset, deque)
_PLAIN = (str, int, float, bool, type(None))
_GAP = "\0"
_Pending = dict[int, tuple[set[int], str]]


def holders(objects: list[object]) -> dict[int, str]:
    """Return what holds each object, by its identity, as far as it is found within DEPTH steps.

    Names of the frames that run now are tried first, the user's own before those of libraries.
    Lists of torchgauge that hold the objects, but for `objects` itself, would be found too.
    """
    names: dict[int, str] = {}
    items = objects
    # By identity: the origins that it holds, and the text that reaches them from it.
    pending: _Pending = {id(item): ({id(item)}, "") for item in items}
    variables = _variables()
    own_ids = {id(objects)}
    for _ in range(DEPTH):
        for item in items:
            origins, inner = pending[id(item)]
            if (name := variables.get(id(item))) is not None:
                # No comprehension names `item`: its cell would hold, and be found to hold, itself.
                names |= dict.fromkeys(
                    origins - names.keys(), name.replace(_GAP, f"{inner}{_size(item)}")
                )
        items = [item for item in items if not pending[id(item)][0] <= names.keys()]
        own_ids |= {id(items), *map(id, items)}
        items, pending = _outwards(items, pending, names, own_ids)
        own_ids.add(id(items))
    return names


def graph_roots(names: list[torch.Tensor]) -> dict[int, int]:
    """Return the identity of the tensor in whose graph a node is, by the node's number."""
    roots: dict[int, int] = {}
    visited: set[Any] = set()
    for tensor in names:
        pending = [tensor.grad_fn]
        while pending and len(visited) < MOST_NODES:
            node = pending.pop()
            if node is None or node in visited:
                continue
            visited.add(node)
            pending += [next_node for next_node, _ in node.next_functions]
            if (number := node_number(node)) is not None:
                roots.setdefault(number, id(tensor))
    return roots


def _outwards(
    items: list[object], pending: _Pending, names: dict[int, str], own_ids: set[int]
) -> tuple[list[object], _Pending]:
    """Return what holds the items, and note what has a name there already."""
    outer_items: list[object] = []
    outer: _Pending = {}
    for referrer in gc.get_referrers(*items) if items else ():
        if id(referrer) in own_ids or isinstance(referrer, FrameType):
            continue
        for key, child in _children(referrer):
            if (entry := pending.get(id(child))) is None or entry[0] <= names.keys():
                continue
            origins, inner = entry[0], f"{key}{entry[1]}{_size(child)}"
            if name := _name(referrer, inner):
                names |= dict.fromkeys(origins - names.keys(), name)
            elif id(referrer) in outer:
                outer[id(referrer)][0].update(origins)
            else:
                outer_items.append(referrer)
                outer[id(referrer)] = ({*origins}, inner)
    return outer_items, outer


def _children(referrer: Any) -> Iterator[tuple[str, object]]:
    """Yield what an object holds, with the text that reaches it."""
    if isinstance(referrer, dict):
        yield from ((f"[{_key(key)}]", value) for key, value in referrer.items())
    elif isinstance(referrer, _SEQUENCES):
        yield from (("[…]", value) for value in referrer)
    elif isinstance(referrer, CellType):
        yield "", referrer.cell_contents
    elif isinstance(referrer, FunctionType):
        yield from zip(referrer.__code__.co_freevars, referrer.__closure__ or (), strict=False)
        yield from (("a default", value) for value in referrer.__defaults__ or ())
    elif isinstance(referrer, MethodType):
        yield "", referrer.__self__
    elif hasattr(referrer, "__dict__"):
        yield from ((f".{key}", value) for key, value in vars(referrer).items())
        yield "", vars(referrer)


def _name(referrer: Any, inner: str) -> str:
    """Return the name of what holds something, where that ends the search; else ""."""
    if inner.startswith("['"):  # of an attribute, in the dictionary of an object
        inner = "." + inner[2:].replace("']", "", 1)
    if isinstance(referrer, ModuleType):
        return f"{inner.lstrip('.')} in {referrer.__name__}"
    if isinstance(referrer, FunctionType):
        code = referrer.__code__
        return f"{inner} in {code.co_qualname}, {place(code.co_filename, code.co_firstlineno)}"
    if isinstance(referrer, type):
        return f"{referrer.__qualname__}{inner}"
    if isinstance(referrer, (dict, CellType, MethodType, *_SEQUENCES)):
        return ""
    return f"{type(referrer).__qualname__}{inner}" if hasattr(referrer, "__dict__") else ""


def _variables() -> dict[int, str]:
    """Return the names of what running frames hold, with a gap for what is inside of it."""
    names: dict[int, str] = {}
    libraries: dict[int, str] = {}
    threads = sys._current_frames()  # noqa: SLF001 - there is no public way
    # Its own would be a cycle, which would keep what the user's functions hold.
    threads[threading.get_ident()] = sys._getframe(1)  # noqa: SLF001
    for frame in threads.values():
        current: FrameType | None = frame
        while current is not None:
            kind = _kind(current.f_code)
            if kind != "ours":
                target = names if kind == "user's" else libraries
                file, function = Path(current.f_code.co_filename).name, current.f_code.co_qualname
                text = f"{_GAP} in {file if function == '<module>' else f'{function}, {file}'}"
                for name, value in locals_of(current):
                    target.setdefault(id(value), f"{name}{text}")
            current = current.f_back
    return libraries | names


@functools.cache
def _kind(code: CodeType) -> str:
    return kind_of(code.co_filename)


def program_line(frame: FrameType | None, *, backward: bool) -> tuple[str, bool]:
    """Return the innermost line of the program, and whether a checkpoint runs again.

    In a backward pass the line that calls it is better than none.
    """
    line, recomputed = "", False
    while frame is not None and (backward or not line):
        code = frame.f_code
        if not line and _kind(code) == "user's":
            line = place(code.co_filename, frame.f_lineno)
        recomputed = recomputed or (backward and code.co_filename == CHECKPOINT)
        backward = backward and code is not backward_code
        frame = frame.f_back
    return line, recomputed


def locals_of(frame: FrameType) -> list[tuple[str, object]]:
    """Return the variables of a frame, which holds them no longer for that."""
    values = frame.f_locals
    items = list(values.items())
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(values, dict):
        values.clear()  # before Python 3.13 it is a copy that the frame keeps
    return items


def place(file: str, line: int | None) -> str:
    """Return a line of a file as text: the file's own name, without its folders."""
    return f"{Path(file).name}:{line}"


def _key(key: object) -> str:
    if isinstance(key, tuple) and all(isinstance(part, _PLAIN) for part in key):
        return repr(key)
    return repr(key)[:40] if type(key) in _PLAIN else type(key).__name__


def _size(item: object) -> str:
    if isinstance(item, (dict, *_SEQUENCES)):
        return f" ({type(item).__name__} of {len(item)})"
    return ""
