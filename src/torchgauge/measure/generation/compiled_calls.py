"""Time the compiled call that transformers' `generate` makes for caches of a fixed size."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn

from torchgauge.measure.generation.forwards import ThreadForwards, timing
from torchgauge.signals import restoring

_NAME = "get_compiled_call"


@restoring
def compiled_calls_timed(
    module: nn.Module, of_thread: ThreadForwards, hidden: Sequence[nn.Module]
) -> Iterator[None]:
    """Time what the module's `get_compiled_call` returns, from outside, until the block ends.

    It is compiled from the module's own call: the timers of the modules `hidden` are not in it.
    """
    attributes = module.__dict__
    replaced = attributes.get(_NAME)
    function: Any = type(module).get_compiled_call  # type: ignore[attr-defined]

    @functools.wraps(function)
    def get_compiled_call(self: nn.Module, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        compiled: Callable[..., Any] = function(self, *args, **kwargs)
        if self is not module or compiled == self.__call__:
            return compiled
        return timing(compiled, module, "model", of_thread, hidden)

    if replaced is None:
        attributes[_NAME] = types.MethodType(get_compiled_call, module)
    try:
        yield
    finally:
        if replaced is None:
            attributes.pop(_NAME, None)
