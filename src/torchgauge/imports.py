"""Libraries that are imported when they are needed, and the modules that were imported."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from torchgauge.errors import missing_extra


def imported(name: str) -> Any:
    """Return a module. scipy.special sets a filter of warnings when it is imported."""
    with warnings.catch_warnings():
        return importlib.import_module(name)


def required(module: str, extra: str, purpose: str, library: str = "") -> Any:
    """Return a module of an optional library; raises MissingExtraError where it is absent.

    `extra` is torchgauge's that has it, `library` its name where that is not the module's.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        absent = missing is not None and missing.split(".")[0] == module.split(".")[0]
        cause = "" if absent else str(error)
        raise missing_extra(library or module, extra, purpose, cause) from error


def modules_with_files() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the name, members and file of each imported module; a lazy one stays as it is."""
    for name, module in list(sys.modules.items()):
        if issubclass(type(module), ModuleType):  # cffi's libraries say that they are modules
            # Asked for an attribute, a lazy module would be imported, and may fail.
            members = object.__getattribute__(module, "__dict__")
            if isinstance(file := members.get("__file__"), str):
                yield name, members, file
