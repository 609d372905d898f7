"""The figures of a record as TensorBoard scalars; needs the extra `tensorboard`."""

from __future__ import annotations

import datetime
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchgauge.files import check_writable
from torchgauge.imports import required
from torchgauge.records.exported import Exported
from torchgauge.report.export.scalars import scalars


def log(record: Exported, folder: str | Path, *, step: int = 0) -> Path:
    """Write the known figures as an event file in `folder`, and return the folder.

    `step` places the record among others, such as the number of the commit. Raises MissingExtra,
    InputError `output-unwritable`.
    """
    make_writer = _writer_class()
    folder = Path(folder)
    check_writable(folder)
    created = record.summary().get("created")
    timestamp = time.time()
    if created is not None:
        timestamp = datetime.datetime.fromisoformat(str(created)).timestamp()
    writer = make_writer(str(folder))
    try:
        _add(writer, scalars(record), timestamp, step)
    finally:
        writer.close()
    return folder


def scalar_logger(folder: str | Path) -> Callable[[dict[str, float], float], None]:
    """Return what writes scalars as an event file in `folder`, at a Unix time.

    A forked process writes another one: the writer's thread is not in it. Raises
    MissingExtraError, InputError `output-unwritable`.
    """
    make_writer = _writer_class()
    check_writable(Path(folder))
    # The inherited one stays: as it ends it would write what it holds.
    writer_of = functools.cache(lambda _process: make_writer(str(folder)))
    writer_of(os.getpid())

    def log_scalars(scalars: dict[str, float], timestamp: float) -> None:
        writer = writer_of(os.getpid())
        _add(writer, scalars, timestamp, int(timestamp))
        writer.flush()

    return log_scalars


def _writer_class() -> Any:
    module, purpose = "tensorboard.summary.writer.event_file_writer", "Writing TensorBoard scalars"
    return required(module, "tensorboard", purpose, "tensorboard").EventFileWriter


def _add(writer: Any, scalars: dict[str, float], timestamp: float, step: int) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
    writer.add_event(Event(wall_time=timestamp, step=step, summary=Summary(value=values)))
