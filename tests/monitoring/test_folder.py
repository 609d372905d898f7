"""A monitor folder: files of others, hostile ones too, and those of ended processes as one."""

import os
import time

import msgspec
import pytest

from torchgauge.monitoring.folder import MonitorFolder
from torchgauge.monitoring.process_file import ProcessFile
from torchgauge.records.monitoring.histogram import Histogram
from torchgauge.records.monitoring.process_state import ProcessState
from torchgauge.records.monitoring.window import Window

NOW = 1_790_000_000.0


def window(values=(0.1, 0.2), **more):
    histogram = Histogram.from_values(values)
    usual = {"series": "latency", "labels": {"monitor": "chat"}, "begin": NOW, "end": NOW + 1}
    return Window(**usual | {"count": len(values), "histogram": histogram} | more)


def state(*windows, process=1, **more):
    usual = {"monitor": "chat", "host": os.uname().nodename, "begin": NOW + process, "end": NOW + 1}
    return ProcessState(**usual | {"process": process, "windows": windows} | more)


def written(folder, process_state, name):
    """Write the file of a process that lives until what is returned is closed."""
    folder.mkdir(exist_ok=True)
    file = ProcessFile(folder / f"{name}.monitor")
    file.write(msgspec.msgpack.encode(process_state))
    return file


def damaged(field, value):
    """Return a state whose window has a value that no monitor writes."""
    broken = msgspec.to_builtins(window())
    part = broken["histogram"] if field in ("sum", "counts") else broken
    part[field] = value
    return msgspec.to_builtins(state()) | {"windows": [broken]}


@pytest.mark.parametrize(
    "content",
    [
        damaged("end", NOW - 1),
        damaged("begin", -1.0),
        damaged("count", 2**60),
        damaged("sum", 1e50),
        damaged("counts", [2**62]),
        msgspec.to_builtins(state(window())) | {"schema": "torchgauge.monitor/2"},
        {"other": 1},
    ],
)
def test_a_file_that_no_monitor_wrote_is_passed_over_and_named(folder, content):
    written(folder, state(window()), "good")
    written(folder, content, "bad")
    reader = MonitorFolder()
    (total,) = reader.totals()
    assert total.count == 2
    trouble = reader.trouble()
    assert trouble.id == "monitor-file"
    assert "bad.monitor" in trouble.cause
    (folder / "bad.monitor").unlink()
    assert len(reader.totals()) == 1
    assert reader.trouble() is None


def test_what_is_no_plain_file_holds_nobody_up(folder):
    written(folder, state(window()), "good")
    os.mkfifo(folder / "pipe.monitor")
    (folder / "folder.monitor").mkdir()
    (folder / "nowhere.monitor").symlink_to("nothing")
    (folder / "endless.monitor").symlink_to("/dev/zero")
    reader = MonitorFolder()
    begin = time.monotonic()
    assert len(reader.totals()) == 1
    assert time.monotonic() - begin < 5
    assert reader.unreadable == ("endless.monitor", "folder.monitor", "pipe.monitor")
