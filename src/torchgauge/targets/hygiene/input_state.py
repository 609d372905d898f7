"""Inputs that a call changes, put back before the next call so that every call gets the same.

A cache of keys and values grows by each call, a list is appended to, a buffer is written in place,
a gradient is added to the last one: measured again and again, such a call would be another one each
time. What a call changed is known after the first one, and put back outside of what is timed.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterator

import torch

from torchgauge.errors import InputError
from torchgauge.targets.hygiene.gradients import Gradients
from torchgauge.targets.hygiene.kept import Restoration, listed
from torchgauge.targets.hygiene.state import INPUT, State
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.inputs.tensors import extent, strided, version_of

# Bytes of tensors that are copied beforehand: those that an object holds (a cache), and those that
# the call is given directly, which few models write to.
COPIED_OF_OBJECTS = 1 << 31
COPIED_DIRECTLY = 1 << 26


@dataclasses.dataclass(slots=True)
class _Input:
    """A tensor among the inputs, another view of its memory, and a copy of its content if made."""

    name: str
    tensor: torch.Tensor
    alias: torch.Tensor
    version: int | None
    saved: torch.Tensor | None = None
    written: bool = False

    @property
    def counts_a_write(self) -> bool:
        """Whether torch counted a write since it was last put back."""
        return self.version is not None and version_of(self.alias) != self.version

    def is_written(self) -> bool:
        """Whether a call wrote to it; without a count of writes its content is compared."""
        if self.version is not None:
            return self.counts_a_write
        return self.saved is not None and not torch.equal(self.alias, self.saved.to(self.alias))


class InputState:
    """The inputs' content before the first call, and what calls change of it.

    Attributes:
        changes: Whether calls change their inputs; None before that is known.
    """

    def __init__(self, inputs: Inputs, saved_state: Restoration) -> None:
        self.changes: bool | None = None
        self._restoration = Restoration()
        self._containers = State(self._restoration)
        self._containers.note(INPUT, inputs.args)
        self._containers.note(INPUT, inputs.kwargs)
        direct = {
            id(entry.item): entry.name
            for entry in inputs.walk()
            if isinstance(entry.item, torch.Tensor) and not entry.in_object
        }
        held = [tensor for _, _, tensor in self._containers.named()]
        self._tensors = list(_inputs(held, direct))
        self._gradients = Gradients(held)
        with torch.inference_mode():
            for copied_directly, budget in ((False, COPIED_OF_OBJECTS), (True, COPIED_DIRECTLY)):
                self._copy(
                    [item for item in self._tensors if (item.name != INPUT) is copied_directly],
                    budget,
                    saved_state,
                )

    def look(self) -> None:
        """Find out whether the calls so far changed the inputs.

        Raises InputError `inputs-used-up` where that cannot be put back.
        """
        for item in self._tensors:
            item.written = item.is_written()
        changed = [item for item in self._tensors if item.written]
        self.changes = bool(changed) or self._containers.differs() or self._gradients.differ()
        if lost := [item.name for item in changed if item.saved is None]:
            raise _used_up(listed(lost), "They are too large to be copied for each call.")

    def put_back(self) -> None:
        """Put back what calls changed; raises InputError `inputs-used-up` where that cannot be."""
        self._containers.restore()
        self._gradients.restore()
        if self._restoration.inputs:
            raise _used_up("an iterator or a large array", "It cannot be put back.")
        for item in self._tensors:
            if extent(item.tensor) != extent(item.alias):
                with torch.inference_mode(mode=False):
                    item.tensor.data = item.alias
            if item.saved is not None and (item.written or item.counts_a_write):
                _write(item.alias, item.saved)
                item.version = version_of(item.alias)

    @staticmethod
    def _copy(items: list[_Input], budget: int, saved_state: Restoration) -> None:
        """Copy the smallest to the host, as far as the budget of bytes goes."""
        for item in sorted(items, key=lambda item: item.alias.nbytes):
            budget -= item.alias.nbytes
            if budget < 0:
                return
            item.saved = item.alias.to("cpu", copy=True)
            saved_state.count(item.saved)


def _inputs(tensors: list[torch.Tensor], names: dict[int, str]) -> Iterator[_Input]:
    with torch.inference_mode(mode=False):  # a view made inside would have no version
        for tensor in tensors:
            for part in strided(tensor):
                if not part.is_meta:
                    name = names.get(id(tensor), INPUT)
                    yield _Input(name, part, part.detach(), version_of(part))


def _write(tensor: torch.Tensor, content: torch.Tensor) -> None:
    """Write a tensor's content; on the host without an operator, which a recording would have."""
    if tensor.is_cpu and tensor.is_contiguous() and content.is_contiguous():
        ctypes.memmove(tensor.data_ptr(), content.data_ptr(), tensor.nbytes)
        return
    with torch.inference_mode():
        tensor.copy_(content)


def _used_up(names: str, cause: str) -> InputError:
    return InputError(
        f"The model's forward changes its inputs: {names}.",
        id="inputs-used-up",
        cause=f"{cause} A second call would get other inputs than the first.",
        remedy="Give inputs that a call leaves as they are, or smaller ones.",
    )
