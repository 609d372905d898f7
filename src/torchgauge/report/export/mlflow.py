"""A record as metrics, tags and an artifact of an MLflow run; needs the extra `mlflow`."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

from torchgauge.errors import InputError
from torchgauge.imports import required
from torchgauge.records import codec
from torchgauge.records.exported import Exported
from torchgauge.report.export.scalars import GROUP, scalars

LONGEST = 5000  # characters of a tag's value
LONGEST_NAME = 250  # of a metric


def log(record: Exported, *, step: int | None = None) -> None:
    """Log the known figures into the active run, or a new one as MLflow's own functions do.

    The texts of the summary become tags, the record itself an artifact. Raises MissingExtra.
    """
    mlflow = required("mlflow", "mlflow", "Logging to MLflow")
    texts = {
        f"{GROUP}.{name}": value[:LONGEST]
        for name, value in record.summary().items()
        if isinstance(value, str)
    }
    mlflow.set_tags(texts)
    mlflow.log_metrics(scalars(record), step=step)
    mlflow.log_text(codec.encode(record).decode(), f"{GROUP}/record.json")


def scalar_logger() -> Callable[[dict[str, float], float], None]:
    """Return what logs scalars into the run that is active now, from any thread; at a Unix time.

    Raises MissingExtraError, InputError `no-run`.
    """
    mlflow = required("mlflow", "mlflow", "Logging to MLflow")
    run = mlflow.active_run()
    if run is None:
        raise InputError(
            "No run of MLflow is active.", id="no-run", remedy="Call mlflow.start_run() first."
        )
    identity = run.info.run_id

    def log_scalars(scalars: dict[str, float], timestamp: float) -> None:
        names = {_metric(name): value for name, value in scalars.items()}
        mlflow.log_metrics(names, step=int(timestamp), run_id=identity)

    return log_scalars


def _metric(name: str) -> str:
    """Return a name that MLflow takes; it refuses all metrics for one that is longer."""
    name = re.sub(r"[^\w./ -]", "_", name)
    if len(name) <= LONGEST_NAME:
        return name
    head, _, figure = name.rpartition("/")
    return f"{head[: LONGEST_NAME // 2]}_{zlib.crc32(head.encode()):08x}/{figure}"
