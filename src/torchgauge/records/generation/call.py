"""One call of a generation, with the sizes of its cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Literal

import msgspec

from torchgauge.records.record import Record


class CacheSize(Record, frozen=True, kw_only=True):
    """The bytes of a cache at the end of a call; every storage counts once.

    Attributes:
        kind: Its class.
        held: Bytes of all its tensors' memory.
        used: Bytes of the positions that hold tokens, and of states without positions; None where
            its layout is not known.
        formula: Bytes by the model's sizes: 2 × layers × heads of keys × size of a head × bytes of
            an element × positions × sequences, or what its architecture has in place of that; None
            where none is known to hold.
        reason: Why held, used and the formula differ; empty where they do not.
        positions: Positions of a sequence that it has seen.
        sequences: Rows of its tensors.
        elements: Bytes by dtype, as held.
        window: Positions that every layer attends to at most; None where a layer attends to all.
    """

    kind: str
    held: int
    used: int | None = None
    formula: int | None = None
    reason: str = ""
    positions: int | None = None
    sequences: int | None = None
    elements: dict[str, int] = msgspec.field(default_factory=dict)
    window: int | None = None


Stage = Literal["encoder", "prefill", "decode", "draft"]


class Forwards(Record, frozen=True, kw_only=True):
    """The forwards of a call in order, as columns of equal length.

    Attributes:
        begin: Seconds from the begin of the call.
        duration: Seconds on the host.
        stage: "prefill" computes positions of the prompt, "decode" those after it; "encoder" is the
            encoder's forward before them, "draft" the assistant's.
        sequences: Rows of the batch: prompts times beams.
        tokens: Positions of a sequence that were computed.
        cached: Positions of a sequence that were in the cache before.
        device: Seconds of device time; empty on a CPU, where the duration is that.
    """

    begin: tuple[float, ...] = ()
    duration: tuple[float, ...] = ()
    stage: tuple[Stage, ...] = ()
    sequences: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    cached: tuple[int, ...] = ()
    device: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.begin)

    def indices(self, *stages: Stage) -> list[int]:
        """Return the indices of the forwards of some stages."""
        return [index for index, stage in enumerate(self.stage) if stage in stages]

    def seconds(self, index: int) -> float:
        """Return how long a forward took, in seconds: on its device where that was timed."""
        return self.device[index] if self.device else self.duration[index]


class GenerationCall(Record, frozen=True, kw_only=True):
    """One generation, on one clock that begins with it; all times are seconds.

    A token counts as generated when the next forward begins, the last when the call ends: choosing
    it and the rules for stopping are in its time.

    Attributes:
        by: "generate" where a `generate()` was called, "loop" where the program called the model
            itself; a loop's call begins with its first forward.
        batch: Prompts.
        sequences: Sequences that were computed at once: prompts times beams.
        prompt: Positions of a sequence before the first forward after the prompt, padding included.
        new_tokens: Tokens of a sequence that were returned, or that the forwards of a loop make.
        duration: Seconds from begin to end.
        forwards: Every forward of the model, its encoder and its assistant.
        cache: What the cache held at the end; None without one.
        device: Where the model ran.
        error: The type of the exception that ended the call; empty where it returned.
        interrupted: Whether that was Ctrl-C.
    """

    by: Literal["generate", "loop"]
    batch: int
    sequences: int
    prompt: int
    new_tokens: int
    duration: float
    forwards: Forwards
    cache: CacheSize | None = None
    device: str = "cpu"
    error: str = ""
    interrupted: bool = False

    @property
    def first_token(self) -> float | None:
        """Seconds to the first token (TTFT): until it was chosen; None where none was."""
        last = max(self.forwards.indices("encoder", "prefill"), default=None)
        if last is None or self.new_tokens < 1:
            return None
        later = [self.forwards.begin[index] for index in self.forwards.indices("decode")]
        return later[0] if later else self.duration

    @property
    def per_token(self) -> float | None:
        """Seconds per token after the first (TPOT); None of fewer than two tokens."""
        first = self.first_token
        if first is None or self.new_tokens < 2:
            return None
        return (self.duration - first) / (self.new_tokens - 1)

    @property
    def prefill(self) -> float | None:
        """Seconds of the forwards before the first token, the encoder's with them."""
        return self._sum("encoder", "prefill")

    @property
    def decode(self) -> float | None:
        """Seconds of the forwards after the first token, without the assistant's."""
        return self._sum("decode")

    @property
    def between(self) -> float:
        """Seconds in which no forward ran: choosing tokens, stopping rules, Python."""
        return max(0.0, self.duration - sum(self.forwards.duration))

    @property
    def gaps(self) -> tuple[float, ...]:
        """Seconds from the end of each forward to the begin of the next, or of the call's end."""
        begins = (*self.forwards.begin[1:], self.duration)
        ends = map(sum, zip(self.forwards.begin, self.forwards.duration, strict=True))
        return tuple(max(0.0, begin - end) for begin, end in zip(begins, ends, strict=True))

    @property
    def emitted(self) -> tuple[int, ...]:
        """Tokens of a sequence that each decode forward added: above 1 with an assistant."""
        return tuple(self._emitted())

    def _emitted(self) -> Iterator[int]:
        forwards, steps = self.forwards, self.forwards.indices("decode")
        for index, later in itertools.pairwise(steps):
            # Without a cache the whole sequence is computed again.
            column = forwards.cached if forwards.cached[later] else forwards.tokens
            yield column[later] - column[index]
        if steps:
            yield max(0, self.new_tokens - self._chosen_before(steps))

    def _chosen_before(self, steps: list[int]) -> int:
        """Return the tokens that were chosen before the last step began."""
        forwards, first, last = self.forwards, steps[0], steps[-1]
        column = forwards.cached if forwards.cached[last] else forwards.tokens
        # With an assistant the forward of the prompt may have accepted drafts already.
        drafted = forwards.cached[first] > self.prompt and not forwards.indices("encoder")
        accepted = forwards.cached[first] - self.prompt if drafted else 0
        return 1 + accepted + column[last] - column[first]

    def _sum(self, *stages: Stage) -> float | None:
        indices = self.forwards.indices(*stages)
        return sum(map(self.forwards.seconds, indices)) if indices else None
