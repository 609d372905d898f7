"""Notes and restores mutable objects below a module's or callable's attributes and inputs.

Containers of every kind, arrays, generators of random numbers, and objects of classes of the user's
and of other libraries, however nested: what `contents/walk.py` finds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from torchgauge.signals import run_all
from torchgauge.targets.contents import kinds
from torchgauge.targets.contents.kinds import Kind
from torchgauge.targets.contents.walk import Entry, Walk, attributes_of
from torchgauge.targets.hygiene.kept import Restoration, Role
from torchgauge.targets.inputs.tensors import BUFFERS

COPIED = 1 << 25  # bytes of arrays
INPUT = "the inputs"


class _Noted(NamedTuple):
    root: str
    kind: Kind
    container: Any
    content: Any


class State:
    """The content of all mutable objects below some roots, by the names of the roots.

    `known_ids` are objects that other parts restore. Copies of arrays are counted in `restoration`,
    where what changed and could not be put back is noted too.
    """

    def __init__(self, restoration: Restoration, known_ids: Iterable[int] = ()) -> None:
        self._restoration = restoration
        self._tensors: list[tuple[str, torch.Tensor]] = []
        self._noted: list[_Noted] = []
        self._walk = Walk(known_ids)
        self._copy_budget = COPIED

    def note(self, root: str, value: Any) -> None:
        """Note all that is mutable in a value and below it."""
        for entry in self._walk(value):
            # What cannot be read (a closed stream) cannot be put back either.
            with contextlib.suppress(Exception):
                self._note(root, entry)

    def named(self) -> list[tuple[Role, str, torch.Tensor]]:
        """Return the tensors that were found, as `save_values` takes them."""
        return [
            ("input" if root == INPUT else "attribute", root, tensor)
            for root, tensor in self._tensors
        ]

    def differs(self) -> bool:
        """Whether anything differs from what was noted."""
        return any(not noted.kind.matches(noted.container, noted.content) for noted in self._noted)

    def restore(self) -> None:
        """Put back what differs; raises an error after everything else has been put back."""
        run_all(partial(self._restore, noted) for noted in self._noted)

    def _restore(self, noted: _Noted) -> None:
        if noted.kind.matches(noted.container, noted.content):
            return
        self._restoration.progressed |= noted.root != INPUT
        if noted.kind.refill is None:
            self._changed(noted.root)
        else:
            noted.kind.refill(noted.container, noted.content)

    def _changed(self, root: str) -> None:
        if root == INPUT:
            self._restoration.inputs[root] = False
        else:
            self._restoration.altered.append(root)

    def _note(self, root: str, entry: Entry) -> None:
        item, handling = entry.item, entry.handling
        if isinstance(item, torch.Tensor):
            self._tensors.append((root, item))
        elif isinstance(item, BUFFERS):
            self._buffer(root, item)
        if handling.content is not None:
            self._hold(root, handling.content, item)
        if handling.attributes and (attributes := attributes_of(item)) is not None:
            self._hold(root, kinds.DICT, attributes)
        if handling.slots is not None:
            self._hold(root, handling.slots, item)

    def _hold(self, root: str, kind: Kind, container: Any) -> None:
        self._noted.append(_Noted(root, kind, container, kind.note(container)))

    def _buffer(self, root: str, item: Any) -> None:
        if isinstance(item, np.ndarray):
            if item.dtype == object:
                self._hold(root, kinds.OBJECTS, item)
                return
            if item.dtype.hasobject or not item.flags.writeable:
                return
        size = item.nbytes if isinstance(item, np.ndarray) else memoryview(item).nbytes
        kind = kinds.LARGE
        if size <= self._copy_budget:
            self._copy_budget -= size
            self._restoration.host += size
            kind = kinds.NUMBERS if isinstance(item, np.ndarray) else kinds.ARRAY
            kind = kinds.BYTES if isinstance(item, bytearray) else kind
        self._hold(root, kind, item)
