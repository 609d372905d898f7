"""The version of this torchgauge."""

from __future__ import annotations

UNINSTALLED = "0+source"
"""That of a checkout which is on the path and not installed."""


def version() -> str:
    """Return the installed version, or `UNINSTALLED`."""
    import importlib.metadata

    try:
        return importlib.metadata.version("torchgauge-profiler")
    except importlib.metadata.PackageNotFoundError:
        return UNINSTALLED
