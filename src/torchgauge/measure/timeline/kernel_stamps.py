"""Stamps at the kernels of generated code: when each of them began and ended."""

from __future__ import annotations

import ast
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torchgauge.analyze.timeline.call_tree import Call
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.timeline.compilation import KernelSite
from torchgauge.signals import restoring

_NOW, _NOTE, _START = "_torchgauge_now", "_torchgauge_note", "_torchgauge_start"


class KernelStamps:
    """Notes the kernels that generated code calls while `watching`.

    The functions of that code run with two more statements around each kernel, which takes about
    0.2 µs; nothing is compiled for it. Each call has a number in `modules`, as a layer would have:
    `sites` has them by it.
    """

    def __init__(
        self, sites: Sequence[KernelSite], modules: Modules, now: Callable[[], int]
    ) -> None:
        self.sites: dict[int, KernelSite] = {}
        self._now = now
        self._notes: list[tuple[int, int, int, int]] = []
        lines: dict[int, dict[int, int]] = {}
        self._codes = {id(site.code): site.code for site in sites}
        for site in sites:
            number = modules.add(f"{site.call.name}:{len(self.sites)}", "kernel")
            self.sites[number] = site
            lines.setdefault(id(site.code), {})[site.call.line] = number
        self._functions = [
            stamped for key, numbers in lines.items()
            for stamped in _stamped(self._codes[key], numbers)
        ]  # fmt: skip

    @restoring
    def watching(self) -> Iterator[None]:
        """Note kernels until the block ends."""
        originals = [(function, function.__code__) for function, _ in self._functions]
        for code in self._codes.values():
            vars(code).update({_NOW: self._now, _NOTE: self._note})
        try:
            for function, stamped in self._functions:
                function.__code__ = stamped
            yield
        finally:
            for function, original in originals:
                function.__code__ = original
            for code in self._codes.values():
                del vars(code)[_NOW], vars(code)[_NOTE]

    def take_calls(self) -> list[Call]:
        """Return the kernels that have run since the last time."""
        notes, self._notes[:] = self._notes[:], []
        return [Call(number, thread, start, end) for number, thread, start, end in notes]

    def _note(self, number: int, start: int, end: int) -> None:
        self._notes.append((number, threading.get_ident(), start, end))


def _stamped(
    code: ModuleType, numbers: Mapping[int, int]
) -> Iterator[tuple[FunctionType, CodeType]]:
    """Yield the functions of a module that call kernels, and their code with stamps."""
    file = code.__file__ or ""
    tree = _Stamping(dict(numbers)).visit(ast.parse(Path(file).read_text()))
    compiled = compile(ast.fix_missing_locations(tree), file, "exec")
    stamped = {(inner.co_name, inner.co_firstlineno): inner for inner in _inner_codes(compiled)}
    for function in _functions(code):
        key = (function.__code__.co_name, function.__code__.co_firstlineno)
        if key in stamped and _NOTE in stamped[key].co_names:
            yield function, stamped[key]


def _functions(code: ModuleType) -> Iterator[FunctionType]:
    classes = [value for value in vars(code).values() if inspect.isclass(value)]
    for owner in (code, *classes):
        if owner is code or owner.__module__ == code.__name__:
            for value in vars(owner).values():
                if isinstance(value, FunctionType) and value.__code__.co_filename == code.__file__:
                    yield value


def _inner_codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inner_codes(constant)


class _Stamping(ast.NodeTransformer):
    """Puts a reading of the clock before each numbered line, and a note behind it."""

    def __init__(self, numbers: dict[int, int]) -> None:
        self._numbers = numbers

    def generic_visit(self, node: ast.AST) -> Any:
        node = super().generic_visit(node)
        if not isinstance(node, ast.Expr | ast.Assign):
            return node
        number = self._numbers.pop(node.lineno, None)
        if number is None:
            return node
        source = f"{_START} = {_NOW}()\n{_NOTE}({number}, {_START}, {_NOW}())"
        begin, end = ast.parse(source).body
        for statement in (begin, end):
            for part in ast.walk(statement):
                if hasattr(part, "lineno"):
                    ast.copy_location(part, node)
        return [begin, node, end]
