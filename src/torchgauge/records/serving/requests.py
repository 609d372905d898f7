"""Every request of a level of load, as columns."""

from __future__ import annotations

from typing import Literal, get_args

from torchgauge.records.record import Record

Fate = Literal[
    "done",
    "timeout",  # no whole answer within the client's limit
    "refused",  # no connection
    "reset",  # the connection broke before the answer was whole
    "status",  # an answer of another status than 2xx
    "protocol",  # bytes that are no answer of the protocol
    "stream",  # a stream that ended without its last event, or named an error
    "tls",  # no secure connection
    "redirect",  # an answer that names another host
    "local",  # this machine had no port, file descriptor or memory left
    "failed",  # a model that was called directly raised
    "unsent",  # no free slot in flight before the end
    "unfinished",  # no whole answer before the end or an interruption
]
FATES: tuple[Fate, ...] = get_args(Fate)


class Requests(Record, frozen=True, kw_only=True):
    """The requests of a level in the order of their schedule: columns of equal length.

    All times are seconds on the client's monotonic clock from the begin of the level, and
    scheduled ≤ sent ≤ first ≤ last. A column that nothing fills is empty; None in it is unknown.

    Attributes:
        scheduled: When it was due. In a closed loop: when it was sent.
        sent: When its last byte was given to the socket; None where it was not.
        first: When the first content came: a token of a stream, else the first byte of the body.
        last: When the answer was whole.
        fate: What became of it.
        status: The HTTP status.
        item: Index of its body or prompt.
        tokens_in: Tokens of its prompt, by the server's `usage`.
        tokens_out: Tokens of its answer, likewise.
        first_reasoning: When the first reasoning token came, which is no content.
        chunks: Events with content in its stream.
        gaps: Seconds between such events, of all requests one after the other: `chunks` − 1 each.
        batch: Requests that the server computed with it, itself included, if the server says so.
        service: Seconds of that batch in the server, if the server says so.
    """

    scheduled: tuple[float, ...] = ()
    sent: tuple[float | None, ...] = ()
    first: tuple[float | None, ...] = ()
    last: tuple[float | None, ...] = ()
    fate: tuple[Fate, ...] = ()
    status: tuple[int | None, ...] = ()
    item: tuple[int, ...] = ()
    tokens_in: tuple[int | None, ...] = ()
    tokens_out: tuple[int | None, ...] = ()
    first_reasoning: tuple[float | None, ...] = ()
    chunks: tuple[int, ...] = ()
    gaps: tuple[float, ...] = ()
    batch: tuple[int | None, ...] = ()
    service: tuple[float | None, ...] = ()

    def __len__(self) -> int:
        return len(self.scheduled)
