"""`cache=True`: the same record, sooner; never a wrong one, and never a failure of its own."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from tests.support.paths import PUBLIC_TRACES, public_trace
from tests.support.same_events import assert_same
from tests.support.span_parts import EVENTS, TEXT

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.traces import rank_file
from torchgauge.traces.rank_file import SUFFIX, cached_events

SMALL = ("h100_bert_small", "h100_qwen_0.5b")
TRACED = [
    pytest.param(name, marks=[] if name in SMALL else [pytest.mark.slow], id=name)
    for name in PUBLIC_TRACES
]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(TEXT)
    return path


def kept(source):
    return source.with_name(source.name + SUFFIX)


@pytest.fixture
def readings(monkeypatch):
    """The readings of trace files, not of caches."""
    made = []

    def reading(file, **how):
        made.append(Path(file).name)
        return read_events(file, **how)

    monkeypatch.setattr(rank_file, "read_events", reading)
    return made


@pytest.mark.thorough
@pytest.mark.parametrize("name", TRACED)
def test_the_record_of_the_cache_is_that_of_the_file(name, tmp_path, readings):
    path = public_trace(name)
    source = tmp_path / path.name
    shutil.copyfile(path, source)
    plain = tg.read_trace(source)
    first, again = (tg.read_trace(source, cache=True) for _ in range(2))
    assert first == again == plain
    assert readings == [source.name] * 2  # once without a cache
    assert_same(read_events(source), cached_events(source, python="modules", partial=False))


@pytest.mark.thorough
def test_of_a_folder_each_file_has_one(tmp_path, source, readings):
    sources = [source, source.with_name("trace2.json")]
    shutil.copyfile(*sources)
    found = tg.read_trace(tmp_path, cache=True)
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for one in sources for path in (one, kept(one))
    }
    again = [tg.read_trace(one, cache=True).ranks[0].tree for one in sources]
    assert again == [one.tree for one in found.ranks]
    assert readings == []  # other processes read the files, and nobody did twice


def test_a_file_that_changed_is_read_again(source, readings):
    before = tg.read_trace(source, cache=True)
    source.write_text(TEXT.replace('"dur": 8', '"dur": 7'))
    changed = source.stat()
    after = tg.read_trace(source, cache=True)
    assert after.ranks[0].device_time == pytest.approx(before.ranks[0].device_time - 1e-6)
    assert tg.read_trace(source, cache=True) == after
    os.utime(source, ns=(0, changed.st_mtime_ns + 1))
    tg.read_trace(source, cache=True)
    assert readings == ["trace.json"] * 3


def test_python_functions_are_kept_where_they_are_asked_for(tmp_path, readings):
    path = tmp_path / "trace.json"
    inner = {**EVENTS[5], "name": "model.py(3): forward"}
    path.write_text(TEXT.replace('"traceEvents": [', f'"traceEvents": [{json.dumps(inner)}, '))
    plain = [tg.read_trace(path, python=python) for python in (False, True)]
    assert [tg.read_trace(path, python=python, cache=True) for python in (False, True)] == plain
    assert plain[0].ranks[0].contents.python + 1 == plain[1].ranks[0].contents.python


@pytest.mark.parametrize("foreign", [b"", b"PAR1 and no more", b"\x80\x04cos\nsystem\n"])
def test_a_foreign_cache_is_written_anew(source, readings, foreign):
    kept(source).write_bytes(foreign)
    plain = tg.read_trace(source)
    assert tg.read_trace(source, cache=True) == plain
    assert tg.read_trace(source, cache=True) == plain
    assert readings == ["trace.json"] * 2  # once without a cache


def test_a_damaged_cache_is_written_anew(source, readings):
    plain = tg.read_trace(source, cache=True)
    whole = kept(source).read_bytes()
    kept(source).write_bytes(whole[:100] + bytes(50) + whole[150:])
    assert tg.read_trace(source, cache=True) == plain
    assert kept(source).read_bytes() == whole
    assert readings == ["trace.json"] * 2


def test_where_none_can_be_written_a_warning_says_so(source, monkeypatch):
    def refuse(path, data):
        raise InputError(f"'{path}' could not be written.", id="output-unwritable", cause="Full.")

    monkeypatch.setattr(rank_file, "write_atomically", refuse)
    plain, found = tg.read_trace(source), tg.read_trace(source, cache=True)
    (warning,) = found.ranks[0].warnings
    assert warning.id == "trace-cache-unwritten"
    assert not warning.failed
    assert "Full." in warning.cause
    assert found.ranks[0].tree.rows == plain.ranks[0].tree.rows


def test_a_cache_that_is_a_folder_is_left_alone(source):
    kept(source).mkdir()
    found = tg.read_trace(source, cache=True)
    assert [one.id for one in found.ranks[0].warnings] == ["trace-cache-unwritten"]
    assert kept(source).is_dir()


def test_of_a_damaged_trace_none_is_kept(tmp_path):
    source = tmp_path / "cut.json"
    source.write_text(TEXT[:1200])
    assert tg.read_trace(source, cache=True, partial=True) == tg.read_trace(source, partial=True)
    assert not kept(source).exists()
    with pytest.raises(InputError, match="cut off"):
        tg.read_trace(source, cache=True)


def test_a_file_that_changes_while_it_is_read_is_not_kept(source, monkeypatch):
    def reading(file, **how):
        found = read_events(file, **how)
        file.write_text(TEXT + " ")
        return found

    monkeypatch.setattr(rank_file, "read_events", reading)
    tg.read_trace(source, cache=True)
    assert not kept(source).exists()


@pytest.mark.slow
def test_a_cached_trace_is_read_in_a_fraction_of_the_time(tmp_path):
    path = public_trace("v100_train_memory_events_rank1of2")
    source = tmp_path / path.name
    shutil.copyfile(path, source)
    how = {"python": "modules", "partial": False}
    cached_events(source, **how)

    def seconds(way):
        start = time.perf_counter()
        way()
        return time.perf_counter() - start

    ways = (lambda: read_events(source), lambda: cached_events(source, **how))
    ratios = [seconds(ways[0]) / seconds(ways[1]) for _ in range(5)]
    assert sorted(ratios)[2] > 2
