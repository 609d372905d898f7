"""Windows into a run of Weights & Biases or MLflow, or the event files of TensorBoard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchgauge.monitoring.delivery import Batch
from torchgauge.report.export import mlflow, tensorboard, wandb
from torchgauge.report.windows.families import window_scalars

Log = Callable[[dict[str, float], float], None]


class TrackerReceiver:
    """Logs rates, quantiles and errors of each window into the run that was active at first.

    `tracker` is "wandb", "mlflow", or a folder for TensorBoard. Raises MissingExtraError,
    InputError `no-run`, `output-unwritable`.
    """

    backlog = 120

    def __init__(self, tracker: str | Path) -> None:
        # A run is active in the thread that makes the monitor, and not in that of its windows.
        self._log: Log
        if tracker == "wandb":
            self._log = wandb.scalar_logger()
        elif tracker == "mlflow":
            self._log = mlflow.scalar_logger()
        else:
            self._log = tensorboard.scalar_logger(tracker)
        self.part = str(tracker) if tracker in ("wandb", "mlflow") else "tensorboard"

    def receive(self, batch: Batch) -> None:
        """Log the figures of the windows."""
        self._log(window_scalars(batch.windows), batch.windows[0].end)
