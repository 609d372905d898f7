"""The figures of a record in a run of Weights & Biases; needs the extra `wandb`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchgauge.errors import InputError
from torchgauge.imports import required
from torchgauge.records.exported import Exported
from torchgauge.report.export.scalars import GROUP, scalars


def log(record: Exported, *, run: Any = None, step: int | None = None) -> None:
    """Log the known figures into `run`, or the active one; the texts become its configuration.

    Raises MissingExtra, InputError `no-run` where none is active.
    """
    run = _run(run)
    texts = {name: value for name, value in record.summary().items() if isinstance(value, str)}
    run.config.update({GROUP: texts}, allow_val_change=True)
    run.log(scalars(record), step=step)


def scalar_logger() -> Callable[[dict[str, float], float], None]:
    """Return what logs scalars into the run that is active now, from any thread; at a Unix time.

    Raises MissingExtraError, InputError `no-run`.
    """
    run = _run(None)

    def log_scalars(scalars: dict[str, float], timestamp: float) -> None:
        run.log(scalars | {f"{GROUP}/time": timestamp})

    return log_scalars


def _run(run: Any) -> Any:
    wandb = required("wandb", "wandb", "Logging to Weights & Biases")
    run = wandb.run if run is None else run
    if run is None:
        raise InputError(
            "No run of Weights & Biases is active.",
            id="no-run",
            remedy="Call wandb.init() first, or give the run.",
        )
    return run
