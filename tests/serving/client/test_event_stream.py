"""Server-sent events are the same wherever the stream is cut."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgauge.serving.client import framing as event_stream
from torchgauge.serving.client.framing import EventStream, EventTooLongError

STREAM = (
    '\ufeffdata: {"a":\r\ndata: "tö"}\r\n\r\n: a comment\revent: x\rdata:first\rdata: second\r\r'
    "id: 3\n\ndata\ndata: \n\ndata: 🙂\n\n"
).encode()
EVENTS = ['{"a":\n"tö"}'.encode(), b"first\nsecond", b"", "🙂".encode()]


def events(pieces: list[bytes]) -> list[bytes]:
    """What a stream in pieces says."""
    stream = EventStream()
    return [event for piece in pieces for event in stream.feed(piece)] + stream.end()


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_events_do_not_depend_on_the_cuts(cuts):
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[a:b] for a, b in pairwise(edges)]
    assert events(pieces) == EVENTS


def test_every_single_byte_is_a_piece():
    assert events([bytes([byte]) for byte in STREAM]) == EVENTS


def test_the_last_event_needs_no_blank_line():
    assert events([b"data: 1\n\ndata: [DO", b"NE]\n"]) == [b"1", b"[DONE]"]
    assert events([b"data: 1\n\ndata: [DONE]\r"]) == [b"1", b"[DONE]"]


def test_an_event_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(event_stream, "LONGEST_EVENT", 1000)
    stream, line = EventStream(), b"data: " + b"x" * 90 + b"\n"
    assert stream.feed(line * 10) == []
    with pytest.raises(EventTooLongError):
        stream.feed(line * 2)
    with pytest.raises(EventTooLongError):
        EventStream().feed(b"x" * 1001)


def test_lines_without_data_count_too(monkeypatch):
    monkeypatch.setattr(event_stream, "LONGEST_EVENT", 1000)
    with pytest.raises(EventTooLongError):
        EventStream().feed(b"data:\n" * 200)


def test_the_time_of_a_long_line_grows_with_its_length():
    def seconds(pieces: int) -> float:
        """Of the process alone, the shortest of three."""
        taken = []
        for _ in range(3):
            stream, began = EventStream(), time.process_time()
            for _ in range(pieces):
                stream.feed(b"x" * 64)
            taken.append(time.process_time() - began)
        return min(taken)

    assert seconds(32_000) < 3 * 8 * seconds(4_000)  # its square would be 64 times as long
