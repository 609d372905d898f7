"""Which layer the parameters of a model belong to, each tensor once."""

from __future__ import annotations

from torch.nn.parameter import is_lazy

from torchgauge.analyze.timeline.call_tree import MODEL, CallTree
from torchgauge.measure.recording.modules import Modules


def parameters_by_layer(modules: Modules, tree: CallTree) -> list[int | None]:
    """Return the elements of each layer's own parameters, by its number in the tree.

    A tensor that several layers share is the first one's. A module that is never called (its
    parameters are used by another) is part of the one that it is registered in. None of a plain
    callable, whose parameters nobody knows.
    """
    first: dict[int, int] = {}
    for number, layer in enumerate(tree.layers):
        first.setdefault(layer.module, number)
    by_path = {
        path: module for module, named in enumerate(modules.table) for path in named.paths if path
    }
    owners: list[tuple[int, int]] = []
    for module, named in enumerate(modules.table):
        path, owner = named.paths[0], module
        while owner not in first:
            path = path.rpartition(".")[0]
            owner = by_path.get(path, owner) if path else MODEL
        owners.append((first[owner], module))
    counts = [0] * len(tree.layers)
    counted: set[int] = set()
    for layer_number, module in sorted(owners):
        layer_module = modules.by_number[module]
        for parameter in () if layer_module is None else layer_module.parameters(recurse=False):
            if id(parameter) not in counted and not is_lazy(parameter):
                counted.add(id(parameter))
                counts[layer_number] += parameter.numel()
    unknown = modules.by_number[MODEL] is None and not counts[MODEL]
    return [None, *counts[1:]] if unknown else [*counts]
