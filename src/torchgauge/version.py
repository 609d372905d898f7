"""The version of this torchgauge, and those of torch that it is tested with."""

from __future__ import annotations

from torchgauge.errors import MeasurementError

OLDEST_TORCH, NEWEST_TORCH = (2, 11), (2, 14)
# The first whose torch.func derives in inference mode; before, its gradients are zeros there.
TORCH_DERIVES_IN_INFERENCE = (2, 12)

UNINSTALLED = "0+source"
"""That of a checkout which is on the path and not installed."""


def version() -> str:
    """Return the installed version, or `UNINSTALLED`."""
    import importlib.metadata

    try:
        return importlib.metadata.version("torchgauge-profiler")
    except importlib.metadata.PackageNotFoundError:
        return UNINSTALLED


def torch_release() -> tuple[int, ...]:
    """Return the release of the installed torch, such as (2, 13)."""
    import torch

    return tuple(map(int, torch.__version__.split(".")[:2]))


def torch_unsupported(message: str, cause: str) -> MeasurementError:
    """Return the error for what this version of torch lacks or does otherwise."""
    oldest, newest = (".".join(map(str, release)) for release in (OLDEST_TORCH, NEWEST_TORCH))
    remedy = f"Use a torch that torchgauge is tested with: {oldest} to {newest}."
    return MeasurementError(message, id="torch-unsupported", cause=cause, remedy=remedy)
