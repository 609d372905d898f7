"""The dispatch mode that follows what is alive: each storage from its first operator to its end."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from torchgauge.analyze.memory.training_passes import Block, BlockLifetimes
from torchgauge.formulas import scratch
from torchgauge.formulas.touched import tensors
from torchgauge.measure.work.internals import DispatchMode, graph_task, never_compiled, storage_key

_KNOWN_NAMESPACES = frozenset({"aten", "prims", "prim", "torchgauge", "torchvision"})
_NONE: dict[str, Any] = {}


class LiveBytes(DispatchMode):
    """Notes when storages begin and end, on fake tensors too, and the scratch of CPU kernels.

    Storages of `existing` tensors were there before and are left out; so is the scratch without
    `workspaces`. `unknown` names operators of
    which it is not known what their kernels take.
    """

    def __init__(self, existing: Iterable[torch.Tensor], *, workspaces: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lives = BlockLifetimes()
        self.unknown: set[str] = set()
        self._workspaces = workspaces
        self._threads = torch.get_num_threads()
        self._alive: dict[int, Any] = {}
        for tensor in existing:
            self._alive[storage_key(tensor)] = tensor.untyped_storage()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and note what it allocates."""
        outputs = func(*args, **(kwargs or _NONE))
        schema = getattr(func, "_schema", None)
        name = str(func) if schema is None else schema.name
        is_known = schema is not None and func.namespace in _KNOWN_NAMESPACES
        is_known &= not self._workspaces or name not in scratch.UNKNOWN
        if not is_known and any(True for _ in tensors((args, outputs))):
            self.unknown.add(name)
        self._note(name, args, outputs)
        return outputs

    def block_of(self, tensor: torch.Tensor) -> int | None:
        """Return the block that holds a tensor; None of one that was there before."""
        storage = self._alive.get(storage_key(tensor))
        return storage.block if isinstance(storage, _Alive) else None

    def _note(self, name: str, args: Any, outputs: Any) -> None:
        backward = graph_task() != -1
        real_sizes = scratch.sizes(name, args)
        for index, tensor in enumerate(tensors(outputs)):
            key = storage_key(tensor)
            if key in self._alive:
                continue
            storage = tensor.untyped_storage()
            real_size = real_sizes[index] if index < len(real_sizes) else None
            size = storage.nbytes() if real_size is None else real_size
            # Where it may, the engine adds to what a sum holds already; under a mode it may not.
            in_place = backward and name == "aten::add"
            block = self.lives.begin(Block(size, backward), may_replace=in_place)
            alive = self._alive[key] = _Alive(storage, self._ended(key, block))
            alive.block = block
        if self._workspaces and (size := scratch.scratch(name, args, self._threads)):
            self.lives.end(self.lives.begin(Block(size, backward, scratch=True)))

    def _ended(self, key: int, block: int) -> Any:
        def ended(_: Any) -> None:
            self._alive.pop(key, None)
            self.lives.end(block)

        return ended


class _Alive(weakref.ref):  # type: ignore[type-arg]
    """A storage that is alive, by a reference that does not keep it, and its block."""

    block: int


never_compiled(LiveBytes.__torch_dispatch__, below=True)
