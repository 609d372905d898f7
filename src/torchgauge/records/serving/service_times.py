"""How long a server computes a batch, measured where it computes."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import How, Record

LARGEST_BATCH = 65_536
"""Requests of the largest batch that is believed: a server may name any."""


class BatchTimes(Record, frozen=True, kw_only=True):
    """Seconds that a batch of `batch` requests took, one value per batch that ran."""

    batch: int
    seconds: tuple[float, ...]


class TokenTimes(Record, frozen=True, kw_only=True):
    """Seconds of a forward of a language model: fixed + token × tokens + pair × pairs.

    `pairs` are positions computed times positions attended to. `noise` is the relative standard
    deviation of the residuals, `cache` the bytes of the cache per position, `memory` what is left
    for it; None where unknown. `window` is how many positions are attended to at most; None where
    all are.
    """

    stage: Literal["prefill", "decode"]
    fixed: float
    per_token: float
    per_pair: float
    noise: float = 0.0
    cache: float | None = None
    memory: int | None = None
    window: int | None = None


class ServiceTimes(Record, frozen=True, kw_only=True):
    """Service times of one worker.

    Attributes:
        source: Where they are from: "server" (its own clock under load), "call" (the client's clock
            around calls), "sweep", "profile", "generation" or "file".
        batches: By batch size, ascending.
        order: The sizes of all batches in the order in which they ran; empty: size after size.
        tokens: Of prefill and decode, for continuous batching.
        overhead: Seconds per request outside of the batch: reading, HTTP, answering.
        settings: What they were measured with, such as "bf16, compile default"; empty: as given.
        shapes: Prompt and answer of requests in tokens, each as frequent as the others.
        max_batch: As the server was set; None if it does not batch.
        max_delay: Seconds, likewise.
        workers: Workers that shared the load when these were measured.
    """

    source: Literal["server", "call", "sweep", "profile", "generation", "file"]
    batches: tuple[BatchTimes, ...] = ()
    order: tuple[int, ...] = ()
    tokens: tuple[TokenTimes, ...] = ()
    overhead: float = 0.0
    settings: str = ""
    shapes: tuple[tuple[int, int], ...] = ()
    max_batch: int | None = None
    max_delay: float | None = None
    workers: int = 1
    how: How = "measured"
