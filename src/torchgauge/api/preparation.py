"""What every call needs first: torch, and a place for progress."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from torchgauge.errors import missing_extra
from torchgauge.garbage import no_collections
from torchgauge.progress import Progress, showing
from torchgauge.signals import HeldBack, restoring
from torchgauge.turn import turn
from torchgauge.version import OLDEST_TORCH, torch_release, torch_unsupported


def check_torch() -> None:
    """Raise MissingExtraError where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise missing_extra("torch", "torch", "Measuring a model")


def require_torch() -> None:
    """Import torch. Raises MissingExtraError where it is absent, MeasurementError where it is old.

    Ctrl-C waits for its end: torch's code in C++ aborts the process or goes on with half of NumPy.
    """
    check_torch()
    with HeldBack(), no_collections():
        import torch
    if torch_release() < OLDEST_TORCH:
        raise torch_unsupported(
            f"torch {torch.__version__} is too old.", "It lacks what measuring a model needs."
        )


@restoring
def measuring(choice: bool | None) -> Iterator[Progress]:
    """Show progress as chosen, in this thread's turn to measure. Raises as `Turn.take`."""
    with showing(choice) as display, turn(display):
        yield display
