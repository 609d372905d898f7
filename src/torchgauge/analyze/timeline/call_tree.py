"""Layer calls as a tree of call paths: which module was called from which, wherever it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MODEL = 0


class NamedModule(NamedTuple):
    """A module: the qualified names it is registered under ("" for the model), and its class.

    `source` is the file and line of its forward; empty where that is torch's own, or not known.
    """

    paths: tuple[str, ...]
    kind: str
    source: str = ""

    def path_in(self, parent: str) -> str:
        """Return its name as seen from the layer that calls it, where it has several."""
        if parent:
            for path in self.paths:
                if path.startswith(parent + "."):
                    return path
        return self.paths[0]


def name_in(path: str, parent: str) -> str:
    """Return the path from the parent on: "conv1" of "layer1.0.conv1" in "layer1.0"."""
    return path.removeprefix(parent + ".") if parent else path


class Call(NamedTuple):
    """One call of a module by its number, from `start` to `end` in ns on a thread's clock.

    `recomputed`: in a backward pass, as activation checkpointing does.
    """

    module: int
    thread: int
    start: int
    end: int
    recomputed: bool = False


class Layer(NamedTuple):
    """A module at one place of the call tree; the same module called elsewhere is another."""

    module: int
    path: str
    name: str
    parent: int


class CallTree:
    """The layers met so far: number 0 is the model, a parent comes before its children."""

    def __init__(self, modules: Sequence[NamedModule], name: str) -> None:
        self._modules = modules
        self.layers = [Layer(MODEL, "", name, -1)]
        self._numbers: dict[tuple[int, int], int] = {}
        self._last: dict[int, int] = {}

    def child(self, parent: int, module: int) -> int:
        """Return the layer that `module` is when called from the layer `parent`."""
        number = self._numbers.get((parent, module))
        if number is None:
            above = self.layers[parent].path
            path = self._modules[module].path_in(above)
            name = name_in(path, above) or self.layers[0].name
            number = self._numbers[parent, module] = len(self.layers)
            self.layers.append(Layer(module, path, name, parent))
        self._last[module] = number
        return number

    def module(self, layer: int) -> NamedModule:
        """Return the layer's module."""
        return self._modules[self.layers[layer].module]

    def root(self, module: int, *, recomputed: bool) -> int:
        """Return the layer of a call that nothing encloses.

        On another thread it belongs to the model; in a backward pass it is where it last was.
        """
        if recomputed and module in self._last:
            return self._last[module]
        return MODEL if module == MODEL else self.child(MODEL, module)


class Placed(NamedTuple):
    """A call's layer, and the place of the call around it among the calls (−1 without)."""

    layer: int
    around: int


def place(calls: Sequence[Call], tree: CallTree) -> list[Placed]:
    """Return where each call belongs, in the order given; the tree grows by what is new in it.

    A call is inside another one of its thread that began no later and ended no earlier.
    """
    placed: list[Placed] = [Placed(MODEL, -1)] * len(calls)
    stacks: dict[int, list[int]] = {}
    for number in sorted(range(len(calls)), key=lambda n: (calls[n].start, -calls[n].end, -n)):
        call = calls[number]
        stack = stacks.setdefault(call.thread, [])
        while stack and calls[stack[-1]].end < call.end:
            stack.pop()
        if not stack:
            placed[number] = Placed(tree.root(call.module, recomputed=call.recomputed), -1)
        elif call.recomputed and not calls[stack[-1]].recomputed:
            placed[number] = Placed(tree.root(call.module, recomputed=True), stack[-1])
        else:
            around = placed[stack[-1]].layer
            placed[number] = Placed(tree.child(around, call.module), stack[-1])
        stack.append(number)
    return placed
