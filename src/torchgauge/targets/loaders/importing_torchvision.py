"""Import torchvision, and torch._dynamo when it is used: that takes as long as torch itself.

torchvision imports it for one function, `is_compile_supported`, which its RoI Align asks in
deterministic mode on a GPU.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from torchgauge.errors import InputError, missing_extra

_PACKAGE, _MODULE, _FUNCTION = "torch._dynamo", "torch._dynamo.utils", "is_compile_supported"


def import_torchvision() -> ModuleType:
    """Return torchvision.

    Raises:
        MissingExtraError: it is not installed.
        InputError: `torchvision-broken`: it is installed and does not fit the installed torch.
    """
    try:
        with dynamo_later():
            import torchvision
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        raise missing_extra("torchvision", "torchvision", "A torchvision: target") from error
    except (RuntimeError, ImportError, AttributeError) as error:
        import torch

        raise InputError(
            "torchvision is installed and cannot be imported.",
            id="torchvision-broken",
            cause=f"{str(error).splitlines()[0]} (its compiled operators do not fit "
            f"torch {torch.__version__}).",
            remedy="Install the torchvision release made for this torch, from the same place: "
            "see https://github.com/pytorch/vision#installation",
        ) from error
    module: ModuleType = torchvision
    return module


@contextlib.contextmanager
def dynamo_later() -> Iterator[None]:
    """In the block, importing `torch._dynamo` imports it only as soon as it is used."""
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
    """A module that gives way to the real one once an attribute of it is used."""

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
