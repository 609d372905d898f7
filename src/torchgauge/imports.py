"""Libraries that are imported when they are needed, and leave the process as it was."""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_PACKAGE, _MODULE, _FUNCTION = "torch._dynamo", "torch._dynamo.utils", "is_compile_supported"


def imported(name: str) -> Any:
    """Return a module. scipy.special sets a filter of warnings when it is imported."""
    with warnings.catch_warnings():
        return importlib.import_module(name)


@contextlib.contextmanager
def dynamo_later() -> Iterator[None]:
    """In the block, importing `torch._dynamo` imports it only as soon as it is used.

    torchvision imports it, a second, for one function: its RoI Align calls `is_compile_supported`
    in deterministic mode on a GPU. Nothing else of torchvision needs the compiler.
    """
    if _PACKAGE in sys.modules:
        yield
        return
    stand_ins = [_StandIn(_PACKAGE), _StandIn(_MODULE)]
    setattr(stand_ins[1], _FUNCTION, _is_compile_supported)
    sys.modules.update({stand_in.__name__: stand_in for stand_in in stand_ins})
    try:
        yield
    finally:
        _remove_stand_ins()


class _StandIn(ModuleType):
    """A module that the real one takes the place of once an attribute is used."""

    def __getattr__(self, name: str) -> Any:
        # The import system asks for the path of a package; others look at every module's file.
        if name.startswith("__") and (self.__name__, name) != (_PACKAGE, "__path__"):
            raise AttributeError(name)
        _remove_stand_ins()
        return getattr(importlib.import_module(self.__name__), name)


def _remove_stand_ins() -> None:
    for name in (_PACKAGE, _MODULE):
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]


def _is_compile_supported(device_type: str) -> Any:
    return getattr(importlib.import_module(_MODULE), _FUNCTION)(device_type)
