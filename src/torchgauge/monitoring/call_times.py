"""The calls that a monitor looks at more closely: sizes of batches, tokens, layers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torchgauge.monitoring.meter import Call
from torchgauge.monitoring.problems import Problems
from torchgauge.monitoring.series import Series

# One call in so many has its batch read: it takes 1 µs.
SIZES_EVERY = 100
CountTokens = Callable[[tuple[Any, ...], dict[str, Any], Any], int]


class Sizes(NamedTuple):
    """What a call's arguments say of its work: samples and token positions, None if unknown."""

    batch: int | None
    tokens: int | None


class CallTimes:
    """Times single calls with all that is known of them; never raises what is its own.

    Attributes:
        latency: Where the durations go.
        batch: Where the samples go.
        tokens: Where the tokens go.
        count_tokens: Counts the tokens of each call, in place of reading the arguments.
        begin_layers: Starts timing layers and returns what ends it.
        layers_share: Share of these calls whose layers are timed.
        sizes_share: Share of these calls whose sizes are read.
        wake: Starts the process's thread if it does not run.
    """

    def __init__(
        self,
        latency: Series,
        batch: Series,
        tokens: Series,
        problems: Problems,
        *,
        count_tokens: CountTokens | None,
        begin_layers: Callable[[], Callable[[], None] | None] | None,
        layers_share: float,
        sizes_share: float,
        wake: Callable[[], None],
    ) -> None:
        self.latency, self.batch, self.tokens = latency, batch, tokens
        self.problems, self.count_tokens = problems, count_tokens
        self.begin_layers, self.layers_share = begin_layers, layers_share
        self.sizes_share, self.wake = sizes_share, wake

    def call(self, inner: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the call and note what it took; what it raises is raised."""
        end_layers = self.before()
        begin = time.perf_counter_ns()
        try:
            output = inner(*args, **kwargs)
        except BaseException as error:
            self.latency.fail(type(error))
            raise
        else:
            duration = time.perf_counter_ns() - begin
            # With hooks attached it took longer: it counts, without its time.
            self.after(None if end_layers else duration, args, kwargs, output)
            return output
        finally:
            if end_layers is not None:
                end_layers()

    def before(self) -> Callable[[], None] | None:
        """Start timing the layers if it is their turn, and look after the buffer."""
        try:
            self.wake()
            self.latency.drain_if_full()
            if self.begin_layers is not None and random.random() < self.layers_share:  # noqa: S311
                return self.begin_layers()
        except Exception as error:  # noqa: BLE001 - nothing of a monitor's reaches the model
            self.problems.add("layers", error)
        return None

    def after(
        self, duration: int | None, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """Note a call that has ended."""
        try:
            if duration is None:
                self.latency.add_untimed()
            else:
                self.latency.append(duration)
            if self.count_tokens is not None:
                self.tokens.add(self.count_tokens(args, kwargs, output))
            if random.random() < self.sizes_share:  # noqa: S311
                sizes = argument_sizes(args, kwargs)
                if sizes.batch is not None:
                    self.batch.add(sizes.batch)
                if sizes.tokens is not None and self.count_tokens is None:
                    self.tokens.add(sizes.tokens)
        except Exception as error:  # noqa: BLE001 - nothing of a monitor's reaches the model
            self.problems.add("sizes", error)


def argument_sizes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sizes:
    """Return the length of the first tensor's first dimension, and the positions of token ids.

    Token ids are `input_ids`, or a first tensor of integers with two dimensions; padding is among
    its positions.
    """
    tensor = kwargs.get("input_ids")
    if tensor is None:
        tensor = next((value for value in _values(args, kwargs) if hasattr(value, "shape")), None)
    shape = getattr(tensor, "shape", ())
    if tensor is None or not len(shape):
        return Sizes(None, None)
    is_floating = getattr(tensor, "is_floating_point", lambda: True)()
    tokens = None if is_floating or len(shape) != 2 else int(shape[0]) * int(shape[1])
    return Sizes(int(shape[0]), tokens)


def _values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    for value in (*args, *kwargs.values()):
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list | tuple):
            yield from value
        else:
            yield value
