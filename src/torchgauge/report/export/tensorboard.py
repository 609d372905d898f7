"""The figures of a record as TensorBoard scalars; needs the extra `tensorboard`."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

from torchgauge.errors import missing_extra
from torchgauge.files import check_writable
from torchgauge.records.exported import Exported
from torchgauge.report.export.scalars import scalars


def log(record: Exported, folder: str | Path, *, step: int = 0) -> Path:
    """Write the known figures as an event file in `folder`, and return the folder.

    `step` places the record among others, such as the number of the commit. Raises MissingExtra,
    InputError `output-unwritable`.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise missing_extra("tensorboard", "tensorboard", "Writing TensorBoard scalars") from error
    folder = Path(folder)
    check_writable(folder)
    created = record.summary().get("created")
    timestamp = time.time()
    if created is not None:
        timestamp = datetime.datetime.fromisoformat(str(created)).timestamp()
    values = [
        Summary.Value(tag=name, simple_value=value) for name, value in scalars(record).items()
    ]
    writer = EventFileWriter(str(folder))
    try:
        writer.add_event(Event(wall_time=timestamp, step=step, summary=Summary(value=values)))
    finally:
        writer.close()
    return folder
