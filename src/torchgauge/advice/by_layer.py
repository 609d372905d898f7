"""A change that can be made to some layers of a model: the lines that name them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from torchgauge.records.model_facts import Facts


@dataclasses.dataclass(frozen=True)
class ByLayer:
    """How a candidate is applied to the layers under some module paths alone.

    Attributes:
        kinds: Names of the layers' classes in `torch.nn`.
        code: Returns the lines for a model and the paths, of layers or of modules around them.
    """

    kinds: tuple[str, ...]
    code: Callable[[Facts, Sequence[str]], str]


def classes(kinds: Sequence[str], facts: Facts) -> str:
    """Return Python of the set of those classes that a model has layers of."""
    return "{" + ", ".join(f"torch.nn.{kind}" for kind in kinds if facts.count(kind)) + "}"


def layer_condition(kinds: Sequence[str], facts: Facts, paths: Sequence[str]) -> str:
    """Return Python that tells whether a module `m` named `n` is such a layer under the paths.

    The dot at the end keeps "layer.1" from meaning "layer.10".
    """
    prefixes = tuple(f"{path}." for path in paths)
    return f'type(m) in {classes(kinds, facts)} and f"{{n}}.".startswith({prefixes!r})'
