"""A trace that needs more memory than there may be is read up to a time that is said."""

import json

import pytest

from torchgauge.errors import InputError
from torchgauge.readers.kineto import categories as fitting
from torchgauge.readers.kineto.kineto import read_events

COUNT = 1000


def text(count=COUNT, step=10):
    spans = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1,
         "ts": 5_000_000 + at * step, "dur": 4}
        for at in reversed(range(count))
    ]  # fmt: skip
    named = {"ph": "M", "name": "process_name", "pid": 1, "ts": "", "args": {"name": "python"}}
    return json.dumps({"traceEvents": [*spans, named]}).encode()


@pytest.fixture
def small(monkeypatch):
    """Sizes at which a small file is large."""
    monkeypatch.setattr(fitting, "ITSELF", 1000)
    monkeypatch.setattr(fitting, "SPAN", 10)


def test_what_fits_is_read_whole(small):
    events = read_events(text(), memory_limit=1000 + 10 * COUNT)
    assert len(events) == COUNT
    assert not events.warnings


@pytest.mark.parametrize("chunk_size", [1 << 9, 1 << 19])
def test_the_first_part_that_fits_is_read(small, chunk_size):
    limit = 1000 + 10 * COUNT // 4
    events = read_events(text(), memory_limit=limit, chunk_size=chunk_size)
    assert len(events) == COUNT // 4
    assert events.start.max() == (COUNT // 4 - 1) * 10_000  # the first in time, not in the file
    assert events.metadata.process_names == {1: "python"}
    (warning,) = events.warnings
    assert warning.id == "trace-memory-limit"
    assert "2.500 ms of 9.990 ms" in warning.message
    assert "11.0 kB" in warning.cause


def test_times_of_a_large_file_are_sampled(small, monkeypatch):
    monkeypatch.setattr(fitting, "_MAX_SAMPLES", 64)
    events = read_events(text(), memory_limit=1000 + 10 * COUNT // 2, chunk_size=1 << 10)
    assert COUNT * 0.45 < len(events) < COUNT * 0.55


def test_nothing_fits_is_an_error():
    with pytest.raises(InputError) as error:
        read_events(text(), memory_limit=1_000_000)
    assert error.value.id == "memory-limit"
    with pytest.raises(InputError) as error:
        read_events(b'{"traceEvents": [{"ph": "X", "ts": true}]}', memory_limit=1_000_000_000)
    assert error.value.id == "trace-malformed"
