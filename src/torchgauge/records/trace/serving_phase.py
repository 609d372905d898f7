"""The steps of one phase of an inference server: prefill, decode, or both in one batch."""

from __future__ import annotations

from torchgauge.records.record import Record


class ServingPhase(Record, frozen=True, kw_only=True):
    """All recorded steps of one phase, as vLLM, SGLang or ATOM name them.

    Attributes:
        phase: "prefill", "decode", "mixed", or the server's own word.
        steps: How many were recorded.
        requests: The requests of all steps together.
        tokens: The tokens that all steps together computed; None where the names do not say.
        host: Seconds of all steps on the host.
        device: Seconds of the device work that they launched.
        step_host: The median step, in seconds on the host.
        step_device: The median step's device work, in seconds.
        distance: Median seconds from the begin of one step to that of the next of any phase; None
            of a single step.
    """

    phase: str
    steps: int
    requests: int
    tokens: int | None
    host: float
    device: float
    step_host: float
    step_device: float
    distance: float | None
