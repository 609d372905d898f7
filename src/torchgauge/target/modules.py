"""Whether a module's tree can be walked: torch and torchgauge both do, and copy it."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from torchgauge.errors import InputError, text_of


def check_tree(module: nn.Module) -> None:
    """Raise InputError for modules whose own methods raise: `eval()`, `modules()`, `state_dict()`.

    `module-unhashable` where a class compares by value and has no hash, `module-cycle` where a
    module contains itself.
    """
    above: list[int] = []
    done: set[int] = set()
    pending: list[tuple[nn.Module, str, bool]] = [(module, "", True)]
    while pending:
        one, path, enters = pending.pop()
        if not enters:
            above.pop()
            done.add(id(one))
        elif id(one) in above:
            raise _cycle(one, path)
        elif id(one) not in done:
            if type(one).__hash__ is None:
                raise _unhashable(one, path)
            above.append(id(one))
            pending.append((one, path, False))
            for name, child in _children(one).items():
                if child is not None:
                    pending.append((child, f"{path}.{name}" if path else name, True))


def copied(module: Any, memo: dict[int, Any] | None = None) -> Any:
    """Return a deep copy of a module. Raises InputError `not-copyable`."""
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise InputError(
            "The model cannot be copied, and the original is not changed.",
            id="not-copyable",
            cause=text_of(error),
            remedy="Convert or move it yourself, and leave the option out; or give the class a "
            "__deepcopy__ that leaves out what cannot be copied.",
        ) from error


def _children(module: nn.Module) -> Any:
    # What was traced keeps them elsewhere, and finds them when asked.
    return vars(module).get("_modules") or dict(module.named_children())


def _cycle(module: nn.Module, path: str) -> InputError:
    return InputError(
        f"The model contains itself: '{path}' is a module that it is in.",
        id="module-cycle",
        cause=f"torch's own methods ({type(module).__name__}.eval(), state_dict()) never end.",
        remedy="Keep the reference where torch registers no module: in a list, or by "
        "object.__setattr__.",
    )


def _unhashable(module: nn.Module, path: str) -> InputError:
    return InputError(
        f"Module '{path or 'the model'}' cannot be put into a set, which torch does with modules.",
        id="module-unhashable",
        cause=f"{type(module).__qualname__} has __eq__ and no __hash__.",
        remedy="Add `__hash__ = torch.nn.Module.__hash__` to the class (a dataclass: eq=False).",
    )
