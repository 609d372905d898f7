"""Fold equal consecutive layers into one, so that twelve equal blocks are one row."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable
from typing import NamedTuple

import msgspec

from torchgauge.records.work.cost import LayerCost

_NUMBERED = re.compile(r"(.*?)(\d+)")


class _FoldedLayer(NamedTuple):
    """A layer whose children are folded, and the key that equal layers share."""

    layer: LayerCost
    likeness: Hashable


def folded(layer: LayerCost) -> LayerCost:
    """Return the tree with numbered siblings that are alike in one: "h.0–11 ×12", with their sums.

    Alike are layers of one class with as many parameters and the same work, and so their children.
    `number` is that of the first.
    """
    return _folded(layer).layer


def _folded(layer: LayerCost) -> _FoldedLayer:
    children = [_folded(child) for child in layer.children]
    groups = [list(group) for _, group in itertools.groupby(children, key=_key)]
    merged_children = tuple(_merged([member.layer for member in group], layer) for group in groups)
    likeness = (
        layer.node.kind,
        layer.node.parameters,
        layer.node.calls,
        layer.work,
        tuple((child.layer.node.name, child.likeness) for child in children),
    )
    return _FoldedLayer(layer._replace(children=merged_children), likeness)


def _key(layer: _FoldedLayer) -> Hashable:
    named = _NUMBERED.fullmatch(layer.layer.node.name)
    # A name without a number equals no other.
    return (named[1] if named else layer.layer.number, layer.likeness)


def _merged(layers: list[LayerCost], parent: LayerCost) -> LayerCost:
    first, *later_layers = layers
    if not later_layers:
        return first
    last = _NUMBERED.fullmatch(later_layers[-1].node.name)
    name = f"{first.node.name}–{last[2] if last else ''} ×{len(layers)}"
    return _times(first, len(layers), parent.node.parameters, name)


def _times(layer: LayerCost, times: int, max_parameters: int | None, name: str = "") -> LayerCost:
    """Return `times` such layers as one; those that share parameters have no more than `most`."""
    parameters = times * (layer.node.parameters or 0)
    node = msgspec.structs.replace(
        layer.node,
        name=name or layer.node.name,
        calls=times * layer.node.calls,
        parameters=parameters if max_parameters is None else min(parameters, max_parameters),
    )
    return layer._replace(
        node=node,
        own=layer.own.times(times),
        work=layer.work.times(times),
        children=tuple(_times(child, times, max_parameters) for child in layer.children),
    )
