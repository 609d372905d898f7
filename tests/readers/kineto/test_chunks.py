"""Where a trace is cut, and how much of it is held and tried for that."""

from __future__ import annotations

import json

import pytest

from torchgauge.errors import InputError
from torchgauge.readers.kineto import chunks
from torchgauge.readers.kineto.chunks import Chunks


def event(number, nested):
    args = {"list": [{"name": "x", "id": i} for i in range(nested)]}
    return {"name": f"e{number}", "ph": "X", "ts": number, "args": args}


def decoded(events, size, **options):
    text = json.dumps({"traceEvents": events}).encode()
    pieces = (text[i : i + size] for i in range(0, len(text), size))
    return list(Chunks(pieces, "trace", partial=False)), len(text)


@pytest.fixture
def attempts(monkeypatch):
    """How many bytes were tried to decode, one entry per attempt."""
    sizes = []
    decode = chunks.decode_events

    def counted(text):
        sizes.append(len(text))
        return decode(text)

    monkeypatch.setattr(chunks, "decode_events", counted)
    return sizes


@pytest.mark.parametrize("nested", [0, 1, 300])
def test_memory_holds_chunks_also_where_events_hold_lists_of_objects(attempts, nested):
    count = 2_000_000 // (60 + 30 * nested)
    lists, length = decoded([event(i, nested) for i in range(count)], size=100_000)
    assert [e.name for part in lists for e in part] == [f"e{i}" for i in range(count)]
    assert length > 1_500_000
    assert len(lists) > 10
    # What is left over of one piece, and the next.
    assert max(attempts) < 250_000
    assert sum(attempts) < 3 * length


@pytest.mark.thorough
def test_one_event_of_a_hundred_thousand_false_places_takes_few_attempts(attempts):
    lists, length = decoded([event(0, 0), event(1, 100_000), event(2, 0)], size=50_000)
    assert sum(len(part) for part in lists) == 3
    assert len(attempts) < 40
    assert sum(attempts) < 10 * length


def test_an_event_larger_than_any_is_refused(monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_READ_LIMIT", "1e5")
    with pytest.raises(InputError) as error:
        decoded([event(0, 10_000)], size=1000)
    assert error.value.id == "trace-too-large"
    assert "100.0 kB" in error.value.cause
    assert "TORCHGAUGE_READ_LIMIT=200000" in error.value.remedy
    monkeypatch.setenv("TORCHGAUGE_READ_LIMIT", "1e6")
    assert len(decoded([event(0, 10_000)], size=1000)[0]) > 0


@pytest.mark.parametrize("end", [r"\\", r"\"", "}, {", "é", "]"])
def test_places_inside_strings_are_none(attempts, end):
    # Pieces end at every byte of the string, its escapes among them.
    events = [
        event(i, 1) | {"args": {"x": f'{end}"}}, {{"name": {{"a": [{{"b": 1}}, {{"c":{end}'}}
        for i in range(5)
    ]
    for size in range(1, 60):
        lists, _ = decoded(events, size)
        assert [e.name for part in lists for e in part] == [f"e{i}" for i in range(5)]
