"""The example inputs of a call, as positional and keyword arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from torchgauge.targets.contents.walk import Entry


LONGEST = 120


@dataclasses.dataclass(frozen=True, repr=False)
class Inputs:
    """Positional and keyword arguments of one call of the model.

    Attributes:
        args: The positional ones.
        kwargs: The others, by name.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        named = [f"{name}={_short(value)}" for name, value in self.kwargs.items()]
        text = f"<Inputs {', '.join([*map(_short, self.args), *named])}>"
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}…>"

    @staticmethod
    def of(inputs: Any) -> Inputs:
        """Return `inputs` as Inputs: a tuple is positional, a mapping keyword, else one argument.

        None means no argument at all.
        """
        if isinstance(inputs, Inputs):
            return inputs
        if inputs is None:
            return Inputs()
        if isinstance(inputs, tuple) and not hasattr(inputs, "_fields"):
            return Inputs(args=inputs)
        if isinstance(inputs, Mapping):
            return Inputs(kwargs=dict(inputs))
        return Inputs(args=(inputs,))

    def as_given(self) -> Any:
        """Return the inputs in the form a user writes them: tensor, tuple, mapping, or Inputs."""
        if self.args and self.kwargs:
            return self
        if self.kwargs:
            return dict(self.kwargs)
        return self.args[0] if len(self.args) == 1 else self.args

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Inputs:
        """Return the inputs with `change` applied to every tensor in them, however nested.

        What changes is copied, objects too. Raises InputError `inputs-fixed`.
        """
        from torchgauge.targets.contents.replaced import replaced

        args, kwargs = replaced((self.args, dict(self.kwargs)), change)
        return Inputs(args=args, kwargs=kwargs)

    def map_arguments(self, change: Callable[[Any], Any]) -> Inputs:
        """Return the inputs with `change` applied to each argument itself."""
        kwargs = {name: change(value) for name, value in self.kwargs.items()}
        return Inputs(tuple(map(change, self.args)), kwargs)

    def leaves(self) -> Inputs:
        """Return the inputs on the same memory, as leaves of their own where they need a gradient.

        A backward pass ends there: it neither runs nor frees the graph that made what was given,
        and no gradient is left in it.
        """
        leaf_by_id: dict[int, torch.Tensor] = {}

        def leaf(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.requires_grad:
                return tensor
            if id(tensor) not in leaf_by_id:
                leaf_by_id[id(tensor)] = tensor.detach().requires_grad_()
            return leaf_by_id[id(tensor)]

        return self.map(leaf)

    def tensors(self, *, arrays: bool = False) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every tensor with a name: its keyword, or its position ("0", "0.1", "0.mask").

        With `arrays` those of NumPy, and other buffers, come as tensors on their memory.
        """
        from torch import Tensor

        from torchgauge.targets.inputs.tensors import tensor_of

        for entry in self.walk():
            tensor = tensor_of(entry.item) if arrays else entry.item
            if isinstance(tensor, Tensor):
                yield entry.name, tensor

    def walk(self, *outer: type) -> Iterator[Entry]:
        """Yield what the inputs hold, tensors as often as they are held; not in `outer` objects."""
        from torchgauge.targets.contents.walk import Walk

        walk = Walk(repeated=True, outer=outer)
        for name, value in (*enumerate(self.args), *self.kwargs.items()):
            yield from walk(value, str(name))

    def unread(self) -> Iterator[Entry]:
        """Yield of each argument in which no tensor is found the objects that cannot be read."""
        from torchgauge.targets.contents.walk import Walk
        from torchgauge.targets.inputs.tensors import tensor_of

        for name, value in (*enumerate(self.args), *self.kwargs.items()):
            walk = Walk()
            tensors = [tensor_of(entry.item) for entry in walk(value, str(name))]
            if not any(tensor is not None for tensor in tensors) or walk.is_cut:
                yield from walk.unread


def _short(value: Any) -> str:
    """Return a tensor's or an array's type and shape, of others their type."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')} {'×'.join(map(str, value.shape))}"
    return type(value).__name__
