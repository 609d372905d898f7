"""A connection reads its answer alike wherever it was cut, and reports one fate whatever comes."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchgauge.serving.client.columns import CODES, PENDING, Columns
from torchgauge.serving.client.connection import LONGEST_HEAD, Connection
from torchgauge.serving.client.dialects.every import DIALECTS, read_timing
from torchgauge.serving.client.framing import LONGEST_EVENT

EVENT = 'data: {"choices": [{"delta": {"content": "tö"}}]}\n\n'.encode()
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}\n\n'
TIMED = b'Server-Timing: batch;desc="8", service;dur=12.5\r\n'


def chunked(*parts: bytes) -> bytes:
    """A body in chunks."""
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


PLAIN = b"HTTP/1.1 200 OK\r\nServer: x\r\n" + TIMED + b"Content-Length: 2\r\n\r\nok"
EARLY = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + PLAIN
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
) + chunked(EVENT, EVENT[:30], EVENT[30:], EVENT + USAGE, b"data: [DONE]\n\n")
UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\nsome text"


class Socket:
    """A socket that takes so many bytes at once, and gives the pieces of an answer."""

    def __init__(self, pieces=(), room: int = 1 << 20) -> None:
        self.pieces = list(pieces)
        self.room = room
        self.closed = False

    def fileno(self) -> int:
        return 7

    def setsockopt(self, *_) -> None:
        raise OSError("nothing stamps what arrives")

    def send(self, data) -> int:
        if self.room < 0:
            raise ConnectionResetError
        return min(len(data), self.room)

    def recv_into(self, buffer) -> int:
        piece = self.pieces.pop(0) if self.pieces else b""
        if len(piece) > len(buffer):
            self.pieces.insert(0, piece[len(buffer) :])
            piece = piece[: len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self.closed = True


class Loop:
    """Keeps what is called for a descriptor."""

    def __init__(self) -> None:
        self.reader = self.writer = None

    def add_reader(self, fd, call) -> None:
        self.reader = call

    def add_writer(self, fd, call) -> None:
        self.writer = call

    def remove_reader(self, fd) -> None:
        self.reader = None

    def remove_writer(self, fd) -> None:
        self.writer = None


class Sender:
    """Keeps what a connection reports."""

    def __init__(self) -> None:
        self.columns = Columns()
        self.received = bytearray(1 << 16)
        self.buffer = memoryview(self.received)
        self.fates: list[str] = []
        self.reused = 0

    def ended(self, row, fate, moment, problem="") -> None:
        self.fates.append(fate)

    def idle(self, connection, moment) -> None:
        self.reused += 1

    def leads_elsewhere(self, location) -> bool:
        return location.startswith("http")

    def served_by(self, software) -> None:
        pass


def answered(pieces: list[bytes], *, streamed: bool = False, closes: bool = False) -> Sender:
    """What a connection makes of an answer that comes in pieces."""
    sender, loop, stream = Sender(), Loop(), Socket(pieces)
    connection = Connection(
        stream, loop, sender, DIALECTS["openai-chat"].reader() if streamed else None
    )
    connection.send(sender.columns.add(0.0, 0), b"GET / HTTP/1.1\r\n\r\n", 0.0)
    while loop.reader is not None and (stream.pieces or closes):
        loop.reader()
    return sender


def cut(data: bytes, cuts: set[int]) -> list[bytes]:
    """The data in pieces."""
    edges = [0, *sorted(edge for edge in cuts if 0 < edge < len(data)), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.sets(st.integers(1, 600), max_size=40), st.sampled_from((PLAIN, EARLY)))
def test_a_body_in_any_pieces(cuts, answer):
    sender = answered(cut(answer, cuts))
    assert sender.fates == ["done"]
    assert sender.reused == 1
    assert sender.columns.status[0] == 200
    assert (sender.columns.batch[0], sender.columns.service[0]) == (8, 0.0125)
    assert sender.columns.sent[0] <= sender.columns.first[0] <= sender.columns.last[0]


@given(st.sets(st.integers(1, 600), max_size=40))
def test_a_stream_in_any_pieces(cuts):
    sender = answered(cut(STREAM, cuts), streamed=True)
    columns = sender.columns
    assert sender.fates == ["done"]
    assert (columns.tokens_in[0], columns.tokens_out[0]) == (7, 3)
    assert list(columns.stamp_rows) == [0, 0, 0]
    assert list(columns.stamps) == sorted(columns.stamps)
    assert columns.first[0] == columns.stamps[0]


def test_a_body_that_ends_with_its_connection():
    assert answered([UNTIL_CLOSED]).fates == []
    assert answered([UNTIL_CLOSED], closes=True).fates == ["done"]
    assert answered([PLAIN[:-1]], closes=True).fates == ["reset"]
    assert answered([UNTIL_CLOSED[:17]], closes=True).fates == ["reset"]


def test_a_request_is_sent_when_the_socket_has_all_of_it():
    sender, loop, stream = Sender(), Loop(), Socket(room=9)
    connection = Connection(stream, loop, sender, None)
    row = sender.columns.add(0.0, 0)
    connection.send(row, b"GET / HTTP/1.1\r\n\r\n", 0.0)
    assert math.isnan(sender.columns.sent[row])
    loop.writer()
    assert sender.columns.sent[row] > 0
    assert loop.writer is None


TOO_LARGE = b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge"


@pytest.mark.parametrize("room", [0, 9])
@pytest.mark.parametrize(
    ("pieces", "fate", "status"),
    [
        ([TOO_LARGE], "status", 413),
        (cut(TOO_LARGE, {10, 40}), "status", 413),
        ([TOO_LARGE.replace(b"Content-Length: 5", b"Connection: close")], "status", 413),
        ([PLAIN], "done", 200),
        ([TOO_LARGE[:-1]], "reset", 413),
        ([], "reset", -1),
    ],
)
def test_an_answer_before_all_was_sent_is_read(room, pieces, fate, status):
    sender, loop, stream = Sender(), Loop(), Socket(pieces, room)
    connection = Connection(stream, loop, sender, None)
    row = sender.columns.add(0.0, 0)
    connection.send(row, b"GET / HTTP/1.1\r\n\r\n", 0.0)
    stream.room = -1
    loop.writer()
    assert sender.fates == [fate]
    assert sender.columns.status[row] == status
    assert stream.closed
    assert math.isnan(sender.columns.sent[row])


LIKE = PLAIN.replace(TIMED, b"")


@pytest.mark.parametrize(
    ("second", "fate", "status", "reused"),
    [
        (LIKE, "done", 200, 2),
        (LIKE[:-2] + b"no", "done", 200, 2),
        (LIKE.replace(b"200", b"503"), "status", 503, 2),
        (LIKE.replace(b"Length: 2", b"Length: 1"), "done", 200, 1),  # a byte too many
        (LIKE[:-1], "reset", 200, 1),
        (LIKE + b"x", "done", 200, 1),
    ],
)
def test_a_head_that_is_known_is_read_as_by_the_parser(second, fate, status, reused):
    for first in (LIKE, LIKE.replace(b"Server: x", b"Server: y")):  # known, and not
        sender, loop, stream = Sender(), Loop(), Socket([first])
        connection = Connection(stream, loop, sender, None)
        for pieces in ([first], [second]):
            stream.pieces = pieces
            row = sender.columns.add(0.0, 0)
            connection.send(row, b"GET / HTTP/1.1\r\n\r\n", 0.0)
            loop.reader()
        if loop.reader is not None:
            loop.reader()  # the end of the connection
        assert sender.fates == ["done", fate]
        assert sender.columns.status[1] == status
        assert sender.reused == reused
        assert sender.columns.sent[1] <= sender.columns.first[1]


def test_a_second_answer_is_nobodys():
    sender = answered([PLAIN + b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"])
    assert sender.fates == ["done"]
    assert sender.reused == 0
    assert sender.columns.status[0] == 200


def test_a_head_without_end_is_no_answer():
    assert answered([b"HTTP/1.1 200 OK\r\nX: " + b"a" * LONGEST_HEAD]).fates == ["protocol"]


def test_a_change_of_the_protocol_is_no_answer():
    upgrade = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    assert answered([upgrade]).fates == ["protocol"]


@pytest.mark.parametrize(
    ("location", "fate"), [(b"/x", "status"), (b"http://192.0.2.1/", "redirect")]
)
def test_redirects_are_not_followed(location, fate):
    answer = b"HTTP/1.1 307 X\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
    assert answered([answer]).fates == [fate]


def test_reasoning_is_no_content():
    def event(text: str) -> bytes:
        return f"data: {text}\n\n".encode()

    counted = '{"usage": {"completion_tokens": 9, "completion_tokens_details": %s}}'
    for details, tokens in (('{"reasoning_tokens": 5}', 4), ("null", -1)):
        body = (
            event('{"choices": [{"delta": {"reasoning_content": "hm"}}]}')
            + EVENT
            + event(counted % details)
            + b"data: [DONE]\n\n"
        )
        head = STREAM[: STREAM.index(b"\r\n\r\n") + 4]
        columns = answered([head + chunked(body)], streamed=True).columns
        assert columns.tokens_out[0] == tokens
        assert len(columns.stamps) == 1
        assert columns.reasoning[0] <= columns.first[0]


@pytest.mark.parametrize(
    ("value", "batch", "service"),
    [
        (b'batch;desc="8", service;dur=12.5', 8, 0.0125),
        (b'cache;dur=1,service;desc="the model";dur="3" , batch ; desc = 65536;x=1', 65_536, 0.003),
        (b"auth-service;dur=53, db;desc=service;dur=5", -1, None),
        (b'microbatch;desc="8", batch;dur=7, service;desc=7', -1, None),
        (b'batch;desc="500000000", service;dur=1', -1, 0.001),
        (b'batch;desc="8, service;dur=1e3x', -1, None),
        (b"service;dur=1" + b" " * 2000, -1, None),
        *((part * 300, -1, None) for part in (b" ", b"batch;", b'batch;desc="', b'batch;";";;')),
    ],
)
def test_batch_and_service_are_metrics_of_these_names(value, batch, service):
    columns = Columns()
    row = columns.add(0.0, 0)
    read_timing(columns, row, value)
    seconds = columns.service[row]
    assert (columns.batch[row], None if math.isnan(seconds) else seconds) == (batch, service)


def of_body(body: bytes, kind: bytes) -> Sender:
    """What a connection makes of a whole answer with this body."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
    return answered([head % (kind, len(body)) + body], streamed=True)


USED = '{"usage": {"prompt_tokens": %d, "completion_tokens": %d}}'


@pytest.mark.parametrize("tokens", [-1, 2**53, 2**63, 10**300])
def test_counts_that_can_be_none_are_unknown(tokens):
    whole = of_body((USED % (tokens, tokens)).encode(), b"application/json")
    stream = of_body(
        f"data: {USED % (tokens, 3)}\n\ndata: [DONE]\n\n".encode(), b"text/event-stream"
    )
    assert whole.fates == stream.fates == ["done"]
    assert (whole.columns.tokens_in[0], whole.columns.tokens_out[0]) == (-1, -1)
    assert (stream.columns.tokens_in[0], stream.columns.tokens_out[0]) == (-1, 3)


@pytest.mark.parametrize(
    ("tokens", "count"), [("2.0", 2), ("2.5", -1), ('"2"', -1), ("true", -1), ("-0.0", 0)]
)
def test_a_count_is_a_whole_number_however_it_is_written(tokens, count):
    used = USED.replace("%d", tokens)
    columns = of_body(f"data: {used}\n\ndata: [DONE]\n\n".encode(), b"text/event-stream").columns
    assert (columns.tokens_in[0], columns.tokens_out[0]) == (count, count)


def test_an_event_without_data_says_nothing():
    body = b"data:\n\n" + EVENT + b"data: \n\n" + EVENT + b"data: [DONE]\n\n"
    sender = of_body(body, b"text/event-stream")
    assert sender.fates == ["done"]
    assert len(sender.columns.stamps) == 2


def test_what_is_nested_too_deep_is_no_answer():
    deep = b'{"error": ' + b"[" * 100_000
    assert of_body(deep, b"application/json").fates == ["answer"]
    assert of_body(b"data: " + deep + b"\n\n", b"text/event-stream").fates == ["answer"]


@pytest.mark.thorough
@pytest.mark.parametrize("piece", [b"data:" + b"x" * 59_000, b"data:\n" * 10_000])
def test_an_event_without_end_closes_the_connection_at_once(piece):
    head = STREAM[: STREAM.index(b"\r\n\r\n") + 4]
    pieces = [head, *[chunked(piece)[:-5]] * (2 * LONGEST_EVENT // len(piece))]
    stream, sender, loop = Socket(pieces), Sender(), Loop()
    Connection(stream, loop, sender, DIALECTS["openai-chat"].reader()).send(
        sender.columns.add(0.0, 0), b"GET", 0.0
    )
    while loop.reader is not None and stream.pieces:
        loop.reader()
    assert sender.fates == ["protocol"]
    assert stream.closed
    assert len(stream.pieces) > 0.4 * len(pieces)


def test_trailers_without_end_are_no_answer():
    trailers = [STREAM.removesuffix(b"\r\n"), *[b"x: y\r\n" * 1000] * 40]
    assert answered(trailers, streamed=True).fates == ["protocol"]


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(
    st.integers(0, 2**63),
    st.sampled_from((PLAIN, EARLY, STREAM, UNTIL_CLOSED)),
    st.booleans(),
    st.sets(st.integers(1, 500), max_size=5),
)
def test_mutated_answers_have_one_fate(seed, answer, streamed, cuts):
    numbers, data = random.Random(seed), bytearray(answer)
    for _ in range(numbers.randint(1, 8)):
        index = numbers.randrange(len(data))
        match numbers.randrange(4):
            case 0:
                data[index] = numbers.randrange(256)
            case 1:
                del data[index : index + numbers.randint(1, 9)]
            case 2:
                data[index:index] = data[: numbers.randint(1, 40)]
            case _:
                data[index:index] = numbers.randbytes(numbers.randint(1, 9))
        data = data or bytearray(b"x")
    sender = answered(cut(bytes(data), cuts), streamed=streamed, closes=True)
    assert len(sender.fates) == 1
    assert sender.fates[0] in CODES
    assert sender.columns.fate[0] == PENDING  # that is the client's to note
