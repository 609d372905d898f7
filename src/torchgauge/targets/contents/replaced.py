"""Copies of values with other tensors in them: what moves and casts inputs."""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from torchgauge import torch_private
from torchgauge.errors import InputError, text_of
from torchgauge.targets.contents.walk import HEAP, Handling, Walk, attributes_of, handling_of

Value = TypeVar("Value")


def replaced(value: Value, change: Callable[[torch.Tensor], torch.Tensor]) -> Value:
    """Return the value with `change` applied to each tensor in it, however it is held.

    What holds a tensor that changed is copied, the rest is the same; the value stays as it is. As
    in a walk, no method of a user's class is called.

    Raises:
        InputError: `inputs-fixed` where a holder cannot be copied.
    """
    holders: dict[int, list[int]] = {}
    items = [entry.item for entry in Walk(holders=holders)(value)]
    changed = _changed(items, change)
    pending = [key for key, (tensor, new) in changed.items() if new is not tensor]
    copied_ids = set(pending)
    while pending:
        fresh = set(holders.get(pending.pop(), ())) - copied_ids
        copied_ids |= fresh
        pending += fresh
    copies = {id(item): item for item in items if id(item) not in copied_ids}
    copies |= {key: new for key, (_, new) in changed.items()}
    try:
        return _Copies(copies, copied_ids)(value)  # type: ignore[no-any-return]
    except Exception as error:  # what is no container and has no attributes
        raise InputError(
            "The inputs cannot be moved or converted: an object among them is not copied.",
            id="inputs-fixed",
            cause=text_of(error),
            remedy="Convert or move them yourself, and leave the option out.",
        ) from error


def _changed(
    items: list[Any], change: Callable[[torch.Tensor], torch.Tensor]
) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """Return each tensor and what takes its place, by its id."""
    # Which are on the CPU in any case.
    lengths = {id(item.batch_sizes) for item in items if isinstance(item, PackedSequence)}
    changed = {}
    for item in items:
        if isinstance(item, torch.Tensor):
            new = item if id(item) in lengths else change(item)
            if isinstance(item, nn.Parameter) and not isinstance(new, nn.Parameter):
                new = nn.Parameter(new.detach(), item.requires_grad)
            changed[id(item)] = item, new
    return changed


class _Copies:
    """Copies objects of `copied_ids` once each; `copies` are those that are made, by id."""

    def __init__(self, copies: dict[int, Any], copied_ids: set[int]) -> None:
        self._copies = copies
        self._copied_ids = copied_ids

    def __call__(self, item: Any) -> Any:
        """Return the copy of an object, or itself where it holds nothing that changed."""
        if type(item) is weakref.ref:
            return weakref.ref(self._copies[id(item())]) if id(item()) in self._copies else item
        if id(item) in self._copies or id(item) not in self._copied_ids:
            return self._copies.get(id(item), item)
        kind = type(item)
        handling = handling_of(kind)
        if issubclass(kind, tuple) or not (handling.follow_content or handling.attributes):
            new = self._made_of_parts(item, kind)
        elif handling.attributes:
            base: Any = next(base for base in kind.__mro__ if not base.__flags__ & HEAP)
            new = base.__new__(kind)
        else:
            new = copy.copy(item)
        self._copies[id(item)] = new
        self._fill(new, item, handling)
        return new

    def _made_of_parts(self, item: Any, kind: type) -> Any:
        """Return a copy that is made of what it holds: nothing can be put into it later."""
        if kind in torch_private.pytree_nodes and not issubclass(kind, tuple):
            parts, context = torch_private.pytree_nodes[kind].flatten_fn(item)
            return torch_private.pytree_nodes[kind].unflatten_fn(map(self, parts), context)
        if issubclass(kind, functools.partial):
            return kind(self(item.func), *map(self, item.args), **self(item.keywords))
        if issubclass(kind, tuple):
            parts = [self(value) for value in tuple.__iter__(item)]
            return tuple.__new__(kind, parts) if kind.__flags__ & HEAP else kind(parts)
        raise TypeError(f"A {kind.__name__} holds tensors.")

    def _fill(self, new: Any, item: Any, handling: Handling) -> None:
        """Give a copy the content and the attributes of the original, copied likewise."""
        if handling.content is not None and handling.follow_content and handling.content.refill:
            content = handling.content.note(item)
            if isinstance(item, dict):
                filled: Any = content[0], [self(value) for value in content[1]]
            else:
                filled = [self(value) for value in content]
            handling.content.refill(new, filled)
        attributes = attributes_of(item) if handling.attributes else None
        if attributes is not None:
            copied = {name: self(value) for name, value in attributes.items()}
            object.__getattribute__(new, "__dict__").update(copied)
        if handling.slots is not None and handling.slots.refill is not None:
            handling.slots.refill(new, [self(value) for value in handling.slots.note(item)])
