"""Layers alike, one after the other, as one: what a reader of twelve equal blocks wants to see."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable
from typing import NamedTuple

import msgspec

from torchgauge.model.cost import LayerCost

_NUMBERED = re.compile(r"(.*?)(\d+)")


class _Seen(NamedTuple):
    """A layer whose children are folded, and what makes it the like of another."""

    layer: LayerCost
    likeness: Hashable


def folded(layer: LayerCost) -> LayerCost:
    """Return the tree with numbered siblings that are alike in one: "h.0–11 ×12", with their sums.

    Alike are layers of one class with as many parameters and the same work, and so their children.
    `number` is that of the first.
    """
    return _folded(layer).layer


def _folded(layer: LayerCost) -> _Seen:
    children = [_folded(child) for child in layer.children]
    groups = [list(group) for _, group in itertools.groupby(children, key=_key)]
    together = tuple(_together([one.layer for one in group], layer) for group in groups)
    likeness = (
        layer.node.kind,
        layer.node.parameters,
        layer.node.calls,
        layer.work,
        tuple((child.layer.node.name, child.likeness) for child in children),
    )
    return _Seen(layer._replace(children=together), likeness)


def _key(seen: _Seen) -> Hashable:
    named = _NUMBERED.fullmatch(seen.layer.node.name)
    # A name without a number is the like of none.
    return (named[1] if named else seen.layer.number, seen.likeness)


def _together(layers: list[LayerCost], parent: LayerCost) -> LayerCost:
    first, *others = layers
    if not others:
        return first
    last = _NUMBERED.fullmatch(others[-1].node.name)
    name = f"{first.node.name}–{last[2] if last else ''} ×{len(layers)}"
    return _times(first, len(layers), parent.node.parameters, name)


def _times(layer: LayerCost, times: int, most: int | None, name: str = "") -> LayerCost:
    """Return `times` such layers as one; those that share parameters have no more than `most`."""
    parameters = times * (layer.node.parameters or 0)
    node = msgspec.structs.replace(
        layer.node,
        name=name or layer.node.name,
        calls=times * layer.node.calls,
        parameters=parameters if most is None else min(parameters, most),
    )
    return layer._replace(
        node=node,
        own=layer.own.times(times),
        work=layer.work.times(times),
        children=tuple(_times(child, times, most) for child in layer.children),
    )
