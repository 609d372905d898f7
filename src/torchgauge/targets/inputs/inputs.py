"""The example inputs of a call, as positional and keyword arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


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
        """Return the inputs with `change` applied to every tensor in them, however nested."""
        from torch import Tensor
        from torch.utils._pytree import tree_map_only

        args, kwargs = tree_map_only(Tensor, change, (self.args, dict(self.kwargs)))
        return Inputs(args=args, kwargs=kwargs)

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

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every tensor with a name: its keyword, or its position ("0", "0.1", …)."""
        from torch import Tensor
        from torch.utils._pytree import tree_flatten_with_path

        leaves, _ = tree_flatten_with_path((list(self.args), dict(self.kwargs)))
        for path, leaf in leaves:
            if isinstance(leaf, Tensor):
                yield ".".join(_key(part) for part in path[1:]), leaf


def _short(value: Any) -> str:
    """Return a tensor's or an array's type and shape, of others their type."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).removeprefix('torch.')} {'×'.join(map(str, value.shape))}"
    return type(value).__name__


def _key(part: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(part, attribute):
            return str(getattr(part, attribute))
    return str(part)
