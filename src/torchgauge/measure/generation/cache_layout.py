"""Read how a cache lies in memory, without a look at what its tensors contain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.inputs.tensors import strided


@dataclasses.dataclass(frozen=True, slots=True)
class PositionTensor:
    """A tensor [sequences, heads, positions, size]: the keys or the values of a layer.

    Attributes:
        role: Which of them it is.
        sequences: Rows.
        capacity: Positions that it has.
        width: Elements of one position of a sequence.
        element_bytes: Bytes of one element.
        length: Positions that hold tokens; None: as many as the cache has seen, if they fit.
        window: The last positions that its layer attends to; None: all.
        by_encoder: Whether its positions are the encoder's.
    """

    role: str
    sequences: int
    capacity: int
    width: int
    element_bytes: int
    length: int | None
    window: int | None = None
    by_encoder: bool = False

    def bytes_of(self, positions: int) -> int:
        """Return the bytes of that many positions of all sequences."""
        return self.sequences * positions * self.width * self.element_bytes


@dataclasses.dataclass(frozen=True, slots=True)
class CacheLayout:
    """The tensors of a cache by their role; `elements` are the bytes of all memory by dtype.

    Attributes:
        kind: The class of the cache, of an encoder–decoder that of its self-attention.
        held: Bytes of its tensors' memory, each once; counters of one number are left out.
        elements: These by dtype.
        keys: Keys and values.
        states: Bytes of tensors without positions.
        quantized: Bytes of keys and values in fewer bits.
        unknown: Bytes of tensors with a layout that is not known here.
        layers: Layers with keys and values.
        sequences: Rows of its tensors; None where these are not known.
        length: Positions that it says it has seen; None where it does not say.
    """

    kind: str
    held: int
    elements: dict[str, int]
    keys: tuple[PositionTensor, ...]
    states: int
    quantized: int
    unknown: int
    layers: int
    sequences: int | None
    length: int | None


def cache_layout(cache: Any) -> CacheLayout | None:
    """Return the layout of a cache; None where it cannot be read, or has no tensor."""
    try:
        return _layout(cache)
    except Exception:  # noqa: BLE001 - another library's classes; a program goes on without it
        return None


def _layout(cache: Any) -> CacheLayout | None:
    tensors = list(_tensors(cache))
    if not tensors:
        return None
    reader = _LayerReader()
    reader.read(cache)
    elements = _held(tensors)
    read = {id(tensor) for tensor in reader.tensors}
    unknown = [tensor for tensor in tensors if id(tensor) not in read]
    return CacheLayout(
        kind=type(getattr(cache, "self_attention_cache", cache)).__name__,
        held=sum(elements.values()),
        elements=elements,
        keys=tuple(reader.keys),
        states=reader.states,
        quantized=reader.quantized,
        unknown=sum(map(_bytes, unknown)),
        layers=reader.layers,
        sequences=reader.sequences,
        length=_length(cache),
    )


class _LayerReader:
    """Read the tensors of transformers' caches, and of tuples of keys and values by layer."""

    def __init__(self) -> None:
        self.keys: list[PositionTensor] = []
        self.states = self.quantized = self.layers = 0
        self.sequences: int | None = None
        self.tensors: list[torch.Tensor] = []

    def read(self, cache: Any) -> None:
        if hasattr(cache, "self_attention_cache"):
            self.read(cache.self_attention_cache)
            self._read_layers(cache.cross_attention_cache, by_encoder=True)
        elif isinstance(cache, list | tuple):
            for layer in cache:
                self._read_tuple(layer)
        else:
            self._read_layers(cache)

    def _read_layers(self, cache: Any, *, by_encoder: bool = False) -> None:
        for layer in getattr(cache, "layers", None) or ():
            if not type(layer).__module__.startswith("transformers."):
                continue
            self._read_keys(layer, by_encoder)
            for states in ("conv_states", "recurrent_states"):
                for tensor in _tensors(getattr(layer, states, None)):
                    self.states += self._take(tensor)
            for quantized in ("_quantized_keys", "_quantized_values"):
                for tensor in _tensors(getattr(layer, quantized, None)):
                    self.quantized += self._take(tensor, packed=True)

    def _read_keys(self, layer: Any, by_encoder: bool) -> None:
        tensors = {name: getattr(layer, name, None) for name in ("keys", "values")}
        present = {
            name: tensor
            for name, tensor in tensors.items()
            if isinstance(tensor, torch.Tensor) and tensor.dim() == 4 and tensor.numel()
        }
        allocated = getattr(layer, "max_cache_len", None) is not None
        length = _length(layer) if allocated and not by_encoder else None
        window = getattr(layer, "sliding_window", None)
        if window is None and getattr(layer, "is_sliding", False):
            window = getattr(layer, "max_cache_len", None)
        for role, tensor in present.items():
            held_positions = length if allocated and not by_encoder else tensor.shape[-2]
            self._take_positions(role, tensor, held_positions, window, by_encoder=by_encoder)
        self.layers += bool(present) and not by_encoder

    def _read_tuple(self, layer: Any) -> None:
        if not isinstance(layer, list | tuple):
            return
        tensors = [t for t in layer if isinstance(t, torch.Tensor)]
        if len(tensors) in (2, 4) and all(t.dim() == 4 for t in tensors):
            self.layers += 1
            for index, tensor in enumerate(tensors):
                role = "values" if index % 2 else "keys"
                self._take_positions(role, tensor, tensor.shape[-2], by_encoder=index > 1)

    def _take_positions(
        self,
        role: str,
        tensor: torch.Tensor,
        length: int | None,
        window: int | None = None,
        *,
        by_encoder: bool,
    ) -> None:
        self._take(tensor)
        sequences, heads, capacity, size = tensor.shape
        element = tensor.element_size()
        self.keys.append(
            PositionTensor(
                role, sequences, capacity, heads * size, element, length, window, by_encoder
            )
        )

    def _take(self, tensor: torch.Tensor, *, packed: bool = False) -> int:
        self.tensors.append(tensor)
        if self.sequences is None and tensor.dim() > 1 and not packed:
            self.sequences = tensor.shape[0]
        return _bytes(tensor)


def _length(cache: Any) -> int | None:
    """Return the positions that a cache, or a layer of one, says it has; a tensor is not read."""
    method: Callable[[], Any] | None = getattr(cache, "get_seq_length", None)
    if method is None:
        return None
    try:
        length = method()
    except Exception:  # noqa: BLE001 - another library's method, which need not be known here
        return None
    return length if type(length) is int else None


def _tensors(holder: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a cache, each once; numbers that it counts with are left out."""
    parts = (part for tensor in tensors_in(holder) for part in strided(tensor))
    return (part for part in parts if part.dim())


def _held(tensors: list[torch.Tensor]) -> dict[str, int]:
    elements: dict[str, int] = {}
    storages = set()
    for tensor in tensors:
        storage = tensor.untyped_storage()
        address = storage.data_ptr() or id(tensor)
        if (tensor.device, address) not in storages:
            storages.add((tensor.device, address))
            dtype = str(tensor.dtype).removeprefix("torch.")
            elements[dtype] = elements.get(dtype, 0) + storage.nbytes()
    return elements


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
