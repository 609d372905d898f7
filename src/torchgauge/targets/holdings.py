"""What a model holds: parameters, packed weights, buffers and other tensors, with their layers.

One answer for size, memory, layers and estimates. Beside what is registered: layers and parameters
in plain lists and dictionaries; weights packed into objects of C++ (torch.ao's quantized layers);
the parts of tensor subclasses (torchao), and what hangs on a tensor (bitsandbytes' `quant_state`);
tensors in attributes and in objects there; of a function what it closes over.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from torchgauge import units
from torchgauge.records.record import MeasurementWarning
from torchgauge.targets import members
from torchgauge.targets.contents.walk import Walk, tensors_in
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.hygiene.kept import listed
from torchgauge.targets.inputs.tensors import extent, identity, nbytes, node_of, strided, tensor_of
from torchgauge.targets.layers import (
    FROZEN,
    Layer,
    joined,
    layers_of,
    outside_of_modules,
    own_attributes,
)

Role = Literal["parameter", "buffer", "derived"]


class Held(NamedTuple):
    """A tensor that a model holds.

    Attributes:
        role: "derived" is a tensor that was computed from others, and has a graph.
        name: The qualified name.
        owner: The id of its layer; None of what a function holds.
        key: What tells it from others; one that is held several times has the same each time.
        shape: Of packed weights their own, not that of the packed bytes.
        dtype: The element type of the bytes.
        bytes: All that it takes, with the scales that belong to quantized weights.
        tensor: None of what is in an object of C++.
        parts: The tensors with a storage, in which the bytes are.
        registered: Whether it is in a module's parameters or buffers, and the module in the model.
    """

    role: Role
    name: str
    owner: int | None
    key: object
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int
    tensor: torch.Tensor | None
    parts: tuple[torch.Tensor, ...]
    registered: bool = False

    @property
    def elements(self) -> int:
        """The number of elements; 0 where it has no shape yet."""
        return 0 if self.is_lazy else math.prod(self.shape)

    @property
    def trainable(self) -> bool:
        """Whether an optimizer that gets `model.parameters()` trains it."""
        is_parameter = self.registered and self.role == "parameter"
        return is_parameter and self.tensor is not None and self.tensor.requires_grad

    @property
    def is_lazy(self) -> bool:
        """Whether it has no shape yet."""
        return self.tensor is not None and is_lazy(self.tensor)


def holdings(
    model: Callable[..., Any], extra: Iterable[nn.Module] = (), *, packed: bool = True
) -> list[Held]:
    """Return all that a model, and `extra` modules, hold: parameters, then buffers, then the rest.

    A tensor comes once for each layer that holds it. Without `packed` not what C++ has to unpack.
    """
    layers = layers_of(model)
    for module in extra:
        layers += (
            layer._replace(path=joined(type(module).__name__, layer.path), registered=False)
            for layer in layers_of(module)
        )
    held = []
    for kind in members.KINDS:
        for layer in layers:
            for name, tensor in members.own(layer.module, kind).items():
                if tensor is not None:
                    name = joined(layer.path, name)
                    entry = _held(name, layer.module, tensor, registered=layer.registered)
                    # Of a program parameters are plain tensors.
                    held.append(
                        entry._replace(role="parameter" if kind == "_parameters" else "buffer")
                    )
    walk = Walk(functions=module_of(model) is None, outer=(nn.Module,))
    # What belongs to a parameter may be an attribute of its layer too, and a view of it.
    known_bytes = Counter[object]()
    for part in {identity(part): part for entry in held for part in entry.parts}.values():
        known_bytes[extent(part)[0]] += nbytes(part)

    def is_new(part: torch.Tensor) -> bool:
        return nbytes(part) > known_bytes[extent(part)[0]]

    attributes: list[tuple[str, nn.Module | None, Any]] = [
        (name, None, value) for name, value in outside_of_modules(model)
    ]
    attributes += (
        (joined(layer.path, name), layer.module, value)
        for layer in layers
        for name, value in own_attributes(layer.module).items()
    )
    for name, owner, value in attributes:
        entries = _in_attribute(walk, name, owner, value, packed=packed)
        held += (entry for entry in entries if not entry.parts or any(map(is_new, entry.parts)))
    return held


def unique(held: Iterable[Held]) -> list[Held]:
    """Return each tensor once, under the first of its names."""
    first: dict[object, Held] = {}
    for tensor in held:
        first.setdefault(tensor.key, tensor)
    return list(first.values())


def unregistered(
    counts: ParameterCounts, called: Iterable[nn.Module], probe: str
) -> tuple[MeasurementWarning, ...]:
    """Return the warning of layers with parameters that no module of a model has registered.

    They are in plain containers, or somewhere else and were `called`.
    """
    if module_of(counts.model) is None:
        return ()
    names = {id(layer.module): layer for layer in counts.layers if layer.holder is not None}
    outside = {id(module): Layer(type(module).__name__, module) for module in called}
    known_ids = {id(layer.module) for layer in counts.layers}
    registered = [counts.own(layer.module) for layer in counts.layers if layer.holder is None]
    # What wraps layers of the model during a call has their parameters, and none of its own.
    shared = set[object]().union(*registered)
    layers = [*names.values(), *(layer for key, layer in outside.items() if key not in known_ids)]
    texts = [
        f"{layer.path} ({type(layer.module).__name__}, {units.elements(count)})"
        for layer in layers
        if (count := counts.total(layer.module, shared))
    ]
    if not texts:
        return ()
    return (
        MeasurementWarning(
            id="layers-unregistered",
            message=f"Layers with parameters are registered in no module of the model: "
            f"{listed(texts)}.",
            probe=probe,
            cause="They are in a plain list or dictionary, in an object or a variable: torch "
            "neither moves, trains nor saves them with the model.",
            remedy="Keep them as attributes of a module, in an nn.ModuleList or nn.ModuleDict.",
        ),
    )


class ParameterCounts:
    """Counts the parameters of a model's modules, a shared one once in each."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self.model = model
        self.layers = layers_of(model)
        self._own: dict[int, dict[object, int]] = {}
        self._inside: defaultdict[int | None, list[nn.Module]] = defaultdict(list)
        self._add(model, self.layers)

    def own(self, module: nn.Module) -> dict[object, int]:
        """Return the elements of a module's own parameters, by key."""
        if id(module) not in self._own:
            self._add(module, layers_of(module))
        return self._own[id(module)]

    def total(self, module: nn.Module, without: Iterable[object] = ()) -> int:
        """Return the elements of all parameters in a module, but for the keys `without`."""
        counts: dict[object, int] = {}
        pending, visited = [module], set[int]()
        while pending:
            inner = pending.pop()
            if id(inner) not in visited:
                visited.add(id(inner))
                counts |= self.own(inner)
                pending += (*inner.children(), *self._inside[id(inner)])
        return sum(counts[key] for key in counts.keys() - without)

    def _add(self, model: Callable[..., Any], layers: list[Layer]) -> None:
        for layer in layers:
            self._own.setdefault(id(layer.module), {})
            if layer.holder is not None:
                self._inside[layer.holder].append(layer.module)
        for held in holdings(model):
            if held.role == "parameter" and held.owner is not None:
                self._own[held.owner][held.key] = held.elements


def _in_attribute(
    walk: Walk, name: str, layer: nn.Module | None, value: Any, *, packed: bool
) -> Iterator[Held]:
    """Yield what one attribute holds; not where it is an object that modules are in.

    Such an object has the model, and is not part of it: a trainer, for one.
    """
    entries = list(walk(value, name))
    if any(isinstance(entry.item, nn.Module) and entry.in_object for entry in entries):
        return
    for entry in entries:
        if (tensor := tensor_of(entry.item)) is not None:
            held = _held(entry.name, layer, tensor, registered=False)
            if name.endswith(members.OFFLOADING):  # its layer has them too, without values
                held = held._replace(role="parameter", shape=(0,), bytes=0)
            elif name.endswith(FROZEN):
                held = held._replace(role="parameter")
            yield held
        elif packed and isinstance(entry.item, torch.ScriptObject):
            yield from _packed(entry.name, layer, entry.item)


def _held(name: str, layer: nn.Module | None, tensor: torch.Tensor, *, registered: bool) -> Held:
    owner = None if layer is None else id(layer)
    role: Role = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
    if not registered and node_of(tensor) is not None:
        role = "derived"
    if is_lazy(tensor):
        return Held(role, name, owner, id(tensor), (), tensor.dtype, 0, tensor, (), registered)
    parts = {identity(part): part for part in strided(tensor)}
    # What a subclass keeps its numbers in; the indices of a sparse tensor may be larger.
    inner = parts.values() if tensor.layout is torch.strided else ()
    main_part, size = max(inner, key=nbytes, default=tensor), nbytes(tensor)
    for value in vars(tensor).values():
        for attached in tensors_in(value):
            fresh = {identity(part): part for part in strided(attached)}
            size += sum(nbytes(fresh[key]) for key in fresh.keys() - parts.keys())
            parts |= fresh
    quantized = vars(tensor).get("quant_state")
    # A nested tensor has no shape, but a number of elements.
    shape = (tensor.numel(),) if tensor.is_nested else tuple(tensor.shape)
    return Held(
        role,
        name,
        owner,
        identity(tensor),
        shape if quantized is None else tuple(quantized.shape),
        main_part.dtype,
        size,
        tensor,
        tuple(parts.values()),
        registered,
    )


def _packed(name: str, layer: nn.Module | None, item: Any) -> Iterator[Held]:
    """Yield the weights in an object of C++, which gives copies of them.

    Scales and zero points, which it gives as scalars, are no weights.
    """
    pending = [item]
    unpacked: dict[object, torch.Tensor] = {}
    while pending:
        for entry in Walk()(_unpacked(pending.pop())):
            if isinstance(entry.item, torch.ScriptObject):
                pending.append(entry.item)
            elif isinstance(entry.item, torch.Tensor) and entry.item.dim():
                unpacked[identity(entry.item)] = entry.item
    for number, tensor in enumerate(unpacked.values()):
        held = _held(f"{name}.{number}", layer, tensor, registered=False)
        yield held._replace(role="parameter", key=(item, number), tensor=None, parts=())


def _unpacked(item: Any) -> Any:
    for method in ("unpack", "__getstate__"):
        if item._has_method(method):  # noqa: SLF001 - its methods are in no other list
            return getattr(item, method)()
    return ()
