"""A monitor folder: files of others, hostile ones too, and those of ended processes as one."""

import math
import os
import random
import time
import warnings
from pathlib import Path

import msgspec
import pytest
from tests.support.histograms import histogram_of

from torchgauge.monitoring import process_file
from torchgauge.monitoring.folder import MOST_ENDED, MonitorFolder, compact
from torchgauge.monitoring.process_file import ProcessFile
from torchgauge.records.monitoring.window import ProcessState, Window

NOW = 1_790_000_000.0
UNREADABLE_TOLD = pytest.mark.filterwarnings("ignore:Of the folder:RuntimeWarning")


def window(values=(0.1, 0.2), **more):
    histogram = histogram_of(values)
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
    part = broken["histogram"] if field in ("sum", "max", "counts") else broken
    part[field] = value
    return msgspec.to_builtins(state()) | {"windows": [broken]}


@pytest.mark.parametrize(
    "content",
    [
        damaged("end", NOW - 1),
        damaged("begin", -1.0),
        damaged("count", 2**60),
        damaged("sum", 1e50),
        damaged("max", math.nan),
        damaged("counts", [2**62]),
        msgspec.to_builtins(state(window())) | {"schema": "torchgauge.monitor/2"},
        {"other": 1},
        state(window(), replaces=("good.monitor", "../x.monitor")),
        state(window(), replaces=("/tmp/x.monitor",)),
        state(window(), replaces=("good.monitor\0.monitor",)),
        state(window(), replaces=("compaction.lock",)),
        state(window(), replaces=("..",)),
    ],
)
def test_a_file_that_no_monitor_wrote_is_passed_over_and_named(folder, content):
    written(folder, state(window()), "good")
    written(folder, content, "bad")
    reader = MonitorFolder()
    with pytest.warns(RuntimeWarning, match=r"1 files could not be read.*bad\.monitor"):
        (total,) = reader.totals()
    with warnings.catch_warnings(action="error"):  # told once
        assert reader.totals() == [total]
    assert total.count == 2
    trouble = reader.trouble()
    assert trouble.id == "monitor-file"
    assert "bad.monitor" in trouble.cause
    (folder / "bad.monitor").unlink()
    assert len(reader.totals()) == 1
    assert reader.trouble() is None


@UNREADABLE_TOLD
def test_a_file_that_nests_without_end_is_passed_over(folder):
    written(folder, state(window()), "good")
    file = written(folder, {}, "deep")
    file.write(b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0")
    reader = MonitorFolder()
    assert len(reader.totals()) == 1
    assert reader.unreadable == ("deep.monitor",)


def test_what_is_no_folder_is_not_taken_for_an_empty_one(folder):
    assert MonitorFolder().totals() == []
    folder.write_text("a file")
    with pytest.raises(NotADirectoryError):
        MonitorFolder().totals()


@UNREADABLE_TOLD
def test_no_file_outside_of_the_folder_is_removed(folder):
    folder.mkdir()
    outside = folder.parent / "outside.monitor"
    outside.touch()
    for number in range(MOST_ENDED):
        ended(folder, number, [1.0])
    written(folder, state(replaces=("../outside.monitor", str(outside))), "hostile").close()
    compacted(folder)
    MonitorFolder().remove_ended(time.time() + 9e9)
    assert outside.exists()


@UNREADABLE_TOLD
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


def ended(folder, number, values, **more):
    name = f"{number:03}"
    written(folder, state(window(values, **more), process=number), name).close()
    return name


def compacted(folder):
    """Compact as a process does that has just begun; return the reader's totals by series."""
    own = written(folder, state(process=999), f"own-{os.urandom(4).hex()}")
    compact(own.path, "chat", os.uname().nodename)
    own.close()
    own.path.unlink()


def total(reader):
    (window,) = reader.totals("chat")
    return window


@pytest.mark.thorough
def test_many_ended_files_become_one_and_nothing_changes(folder):
    rng = random.Random(0)
    lasting, looks = MonitorFolder(), []
    for number in range(60):
        ended(folder, number, [rng.lognormvariate(0, 3) for _ in range(5)], errors={"E": 1})
        looks += lasting.windows()
        before = total(MonitorFolder())
        compacted(folder)
        assert total(MonitorFolder()) == before == total(lasting)
        assert len(list(folder.glob("*.monitor"))) <= MOST_ENDED
    assert (before.count, before.errors) == (300, {"E": 60})
    assert lasting.windows() == []
    assert sum(window.count for window in looks) == 300
    assert math.fsum(w.histogram.sum for w in looks) == pytest.approx(before.histogram.sum)
    assert {path.suffix for path in folder.iterdir()} == {".monitor", ".lock"}
    assert max(len(path.name) for path in folder.iterdir()) < 40


def test_readings_and_running_and_other_processes_stay(folder):
    running = written(folder, state(window([1.0]), process=50), "running")
    written(folder, state(window([2.0]), monitor="other"), "other").close()
    elsewhere = state(window([3.0]), host="elsewhere", end=time.time())
    written(folder, elsewhere, "elsewhere").close()
    for number in range(MOST_ENDED + 1):
        ended(folder, number, [1.0], last=5.0)
    compacted(folder)
    names = {path.stem for path in folder.glob("*.monitor")}
    assert names >= {"running", "other", "elsewhere"}
    assert len(names) == 4
    assert total(MonitorFolder()).count == 2
    running.close()


@pytest.mark.parametrize("step", range(4))
def test_a_process_that_ends_amid_it_loses_nothing_and_counts_nothing_twice(
    folder, monkeypatch, step
):
    for number in range(MOST_ENDED + 1):
        ended(folder, number, [1.0 + number / 10])
    before = total(MonitorFolder())
    steps = iter(range(step))

    def ends(original):
        def function(*arguments):
            if next(steps, None) is None:
                raise KeyboardInterrupt
            return original(*arguments)

        return function

    own = written(folder, state(process=999), "own")
    with monkeypatch.context() as patch:
        for kind, name in ((ProcessFile, "flush"), (Path, "rename"), (Path, "unlink")):
            patch.setattr(kind, name, ends(getattr(kind, name)))
        with pytest.raises(KeyboardInterrupt):
            compact(own.path, "chat", os.uname().nodename)
    own.close()
    own.path.unlink()
    for _ in range(2):
        assert total(MonitorFolder()) == before
        compacted(folder)
    assert len(list(folder.glob("*.monitor"))) <= 2
    assert list(folder.glob("*.unfinished")) == []


def test_files_that_may_not_be_removed_count_once(folder, monkeypatch):
    unlink = Path.unlink

    def refuse(path, *arguments, **options):
        if path.name == "003.monitor":
            raise PermissionError(1, "not yours")
        unlink(path, *arguments, **options)

    for number in range(2 * MOST_ENDED + 2):
        ended(folder, number, [1.0])
        if number == MOST_ENDED:
            with monkeypatch.context() as patch:
                patch.setattr(Path, "unlink", refuse)
                compacted(folder)
    compacted(folder)
    assert total(MonitorFolder()).count == 2 * MOST_ENDED + 2
    assert MonitorFolder().remove_ended(time.time() + 9e9) > 0
    assert MonitorFolder().totals() == []


def test_without_locks_nothing_is_merged(folder, monkeypatch):
    for number in range(MOST_ENDED + 1):
        ended(folder, number, [1.0])
    monkeypatch.setattr(process_file, "fcntl", None)
    compacted(folder)
    assert len(list(folder.glob("*.monitor"))) == MOST_ENDED + 1


@UNREADABLE_TOLD
def test_a_look_while_a_file_is_damaged_counts_nothing_twice(folder):
    file = written(folder, state(window([1.0])), "a")
    reader = MonitorFolder()
    assert sum(w.count for w in reader.windows()) == 1
    content = file.path.read_bytes()
    file.path.write_bytes(b"x" * 8192)
    file.path.write_bytes(content[:512] + content[512:].replace(b"chat", b"chaT"))
    assert reader.windows() == []
    file.path.write_bytes(content)
    assert reader.windows() == []


def test_a_series_whose_files_were_removed_begins_again(folder):
    ended(folder, 1, [1.0] * 9)
    reader = MonitorFolder()
    reader.windows()
    reader.remove_ended(time.time() + 9e9)
    file = written(folder, state(window([1.0])), "new")
    assert reader.windows() == []
    file.write(msgspec.msgpack.encode(state(window([1.0] * 4, end=NOW + 9))))
    assert [w.count for w in reader.windows()] == [3]
