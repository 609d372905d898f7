"""Report a model that ends the process: no job of a pipeline passes by it."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torchgauge.cli.output import tell
from torchgauge.errors import ExitCode
from torchgauge.forks import Owner
from torchgauge.signals import restoring

# What the others of the family call.
_ENDS = ("_exit", "execv", "execve")


@restoring
def refused() -> Iterator[None]:
    """In the block what ends this process at once raises SystemExit, as `sys.exit` does.

    os._exit and os.exec…; a forked process may end as it likes. On another thread, which an
    exception would end alone, the process ends with 1 and says why.
    """
    owner, places = Owner(), [os, sys.modules[os.name]]
    before = [(place, name, getattr(place, name)) for place in places for name in _ENDS]
    try:
        for place, name, original in before:
            setattr(place, name, _refusing(name, original, owner))
        yield
    finally:
        for place, name, original in before:
            setattr(place, name, original)


def _refusing(name: str, original: Callable[..., Any], owner: Owner) -> Callable[..., Any]:
    @functools.wraps(original)
    def end(*arguments: Any, **keywords: Any) -> Any:
        if owner.in_fork:
            return original(*arguments, **keywords)
        called = f"os.{name}({', '.join(map(repr, arguments))})"
        if threading.current_thread() is threading.main_thread():
            raise SystemExit(called)
        tell(f"torchgauge: error: A thread called {called}. [model-exited]")
        return _end_now(ExitCode.MEASUREMENT_FAILED)

    return end


_end_now = os._exit
