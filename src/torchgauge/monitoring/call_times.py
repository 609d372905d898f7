"""The calls that a monitor looks at more closely: sizes of batches, tokens, layers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torchgauge.monitoring.meter import Call
from torchgauge.monitoring.problems import Problems
from torchgauge.monitoring.series import Series

# One call in so many has its batch read: it takes 1 µs.
SIZES_EVERY = 100


CountTokens = Callable[[tuple[Any, ...], dict[str, Any], Any], int]


@dataclass(eq=False)
class CallTimes:
    """Times single calls with what their arguments show; raises nothing of its own.

    Attributes:
        latency: Where the durations go.
        batch: Where the samples go.
        tokens: Where the tokens go.
        count_tokens: Counts the tokens of each call, in place of reading the arguments.
        begin_layers: Starts timing layers and returns what ends it.
        layers_share: Share of these calls whose layers are timed.
        sizes_share: Share of these calls whose sizes are read.
        problems: Where failures are noted.
        compiling: Returns None unless torch.compile looks at what is called; then no layers.
        wake: Starts the process's thread if it does not run.
    """

    latency: Series
    batch: Series
    tokens: Series
    problems: Problems
    count_tokens: CountTokens | None
    begin_layers: Callable[[], Callable[[], None] | None] | None
    layers_share: float
    sizes_share: float
    wake: Callable[[], None]
    compiling: Callable[[], object] = lambda: None

    def call(self, inner: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the call and note what it took; what it raises is raised."""
        end_layers = None
        if random.random() < self.layers_share and self.compiling() is None:  # noqa: S311
            end_layers = self.begin()
        begin = time.perf_counter()
        try:
            output = inner(*args, **kwargs)
        except BaseException as error:  # Ctrl-C in a call as well is a failed one
            self.latency.fail(type(error))
            raise
        else:
            duration = time.perf_counter() - begin
            # With hooks attached it took longer: it counts, without its time.
            self.after(None if end_layers else duration, args, kwargs, output)
            return output
        finally:
            if end_layers is not None:
                end_layers()

    def begin(self) -> Callable[[], None] | None:
        """Start timing the layers; None where it is not possible."""
        try:
            return self.begin_layers and self.begin_layers()
        except Exception as error:  # noqa: BLE001 - nothing of a monitor's reaches the model
            self.problems.add("layers", error)
            return None

    def after(
        self, duration: float | None, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """Note a call that has ended, and look after the buffer."""
        try:
            if duration is None:
                self.latency.add_untimed()
            else:
                self.latency.append(duration)
            self.latency.drain_if_full()
            self.wake()
            if self.count_tokens is not None:
                self.tokens.add(self.count_tokens(args, kwargs, output))
            if self.sizes_share == 1 or random.random() < self.sizes_share:  # noqa: S311
                batch, tokens = argument_sizes(args, kwargs)
                if batch is not None:
                    self.batch.add(batch)
                if tokens is not None and self.count_tokens is None:
                    self.tokens.add(tokens)
        except Exception as error:  # noqa: BLE001 - nothing of a monitor's reaches the model
            self.problems.add("sizes", error)


def argument_sizes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | None, int | None]:
    """Return the samples of a call and its positions of token ids, padding among them.

    Samples are the length of the first tensor's first dimension. Token ids are `input_ids`, or a
    first tensor of integers with two dimensions. None where there is no such tensor.
    """
    tensor = kwargs.get("input_ids")
    if tensor is None:
        tensor = args[0] if args else None
        if not hasattr(tensor, "shape"):
            tensor = next(
                (value for value in _values(args, kwargs) if hasattr(value, "shape")), None
            )
    shape = getattr(tensor, "shape", None)
    # While a model is traced or exported they are symbols: to read one would fix the graph's size.
    if not shape or type(shape[0]) is not int:
        return None, None
    if len(shape) != 2 or getattr(tensor, "is_floating_point", lambda: True)():
        return shape[0], None
    return shape[0], shape[0] * shape[1] if type(shape[1]) is int else None


def _values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    for value in (*args, *kwargs.values()):
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list | tuple):
            yield from value
        else:
            yield value
