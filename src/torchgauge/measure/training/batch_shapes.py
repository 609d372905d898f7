"""A training's batches as the trainer fetches them: their shapes, times and FLOPs once counted."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from torchgauge.analyze.loop.training_totals import summed
from torchgauge.analyze.work.utilization import Products
from torchgauge.errors import option_invalid
from torchgauge.measure.training.model_calls import BatchFlops
from torchgauge.records.headline.figure import Unit
from torchgauge.records.timeline.training_run import Trainer
from torchgauge.signals import replaced
from torchgauge.targets.inputs.content import IMAGE_CHANNELS, batch_of, tokens_of
from torchgauge.targets.inputs.inputs import Inputs

# Shapes that are always counted, and the time of a training that counting more of them may take.
FIRST_SHAPES = 4
COUNTING_SHARE = 0.001
Count = Callable[[Any], int]


class Contents(NamedTuple):
    """What a batch holds; None where it does not say."""

    samples: int | None
    tokens: int | None


@dataclasses.dataclass
class _Calls:
    """Calls with inputs of the same shapes: `inputs` of one until it is counted."""

    inputs: Inputs | None
    products: Products | None = None


class BatchShapes:
    """What batches hold and what calls multiply, by their shapes.

    `samples` and `tokens` are the user's functions of a batch, in place of what its tensors say.
    `unknown` says why FLOPs cannot be counted.
    """

    def __init__(
        self,
        model: nn.Module,
        flops: BatchFlops,
        *,
        samples: Count | None = None,
        tokens: Count | None = None,
        now: Callable[[], int],
    ) -> None:
        self.unknown = ""
        self._model = model
        self._flops = flops
        self._samples = samples
        self._tokens = tokens
        self._now = now
        self._contents: dict[object, Contents] = {}
        self._calls: dict[object, _Calls] = {}
        self._counted = self._counting = 0

    def contents(self, batch: object) -> Contents:
        """Return what a batch holds: samples, and tokens with padding."""
        shape = shapes_of(batch)
        contents = self._contents.get(shape)
        if contents is None:
            inputs = Inputs.of(tuple(batch) if isinstance(batch, list) else batch)
            samples = None if _may_be_images(inputs) else batch_of(inputs)
            contents = Contents(samples, tokens_of(inputs, self._model))
            self._contents[shape] = contents
        if self._samples is not None:
            contents = contents._replace(samples=int(self._samples(batch)))
        if self._tokens is not None:
            contents = contents._replace(tokens=int(self._tokens(batch)))
        return contents

    def call(self, inputs: Inputs) -> object:
        """Take note of a call, and return its shape."""
        shape = shapes_of((inputs.args, inputs.kwargs))
        if shape not in self._calls:
            self._calls[shape] = _Calls(inputs)
        return shape

    def count_new(self, shapes: Iterable[object], elapsed: int, *, now: bool = True) -> None:
        """Count the calls of new shapes, if not `now` later, and release their values.

        `elapsed` are the ns of the training so far.
        """
        for calls in (self._calls[shape] for shape in dict.fromkeys(shapes)):
            inputs, calls.inputs = calls.inputs, None
            if inputs is None or self.unknown:
                continue
            due = self._counted < FIRST_SHAPES or self._counting <= COUNTING_SHARE * elapsed
            if due and now:
                began = self._now()
                calls.products = self._flops.products(inputs)
                self._counting += self._now() - began
                self._counted += 1
                if calls.products is None:  # no share of the steps would be representative
                    self.unknown = self._flops.reason
            else:  # by its shapes alone it can be counted later
                calls.inputs = inputs.map(lambda tensor: tensor.detach().to("meta"))

    def products(self, shapes: Sequence[object]) -> Products | None:
        """Return the products of calls of these shapes together; None if one was not counted."""
        products = [self._calls[shape].products for shape in shapes]
        counted = [part for part in products if part is not None]
        return summed(counted) if counted and len(counted) == len(products) else None


def shapes_of(value: object) -> object:
    """Return what two batches have in common whose calls have equal FLOPs: shapes and types."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    if isinstance(value, Mapping):
        return tuple([(name, shapes_of(item)) for name, item in value.items()])
    if isinstance(value, list | tuple):
        return tuple([shapes_of(item) for item in value])
    return value if isinstance(value, bool | str | None) else type(value)


def _may_be_images(inputs: Inputs) -> bool:
    """Whether several tensors may be images of one sample each: their leading dimension is not."""
    tensors = [tensor for _, tensor in inputs.tensors()]
    return len(tensors) > 1 and all(
        tensor.dim() == 3 and tensor.shape[0] in IMAGE_CHANNELS for tensor in tensors
    )


class StepMonitor(Protocol):
    """A monitor of the process, which raises nothing."""

    def add(self, series: str, value: float, unit: Unit = "s") -> None:
        """Add a value to a series."""


@dataclasses.dataclass(frozen=True)
class GaugeOptions:
    """What a user requests of a callback.

    Attributes:
        window: Steps to record under the profiler; 0: none.
        after: The step after which the window begins.
        save: Where the record is written at the end of the training.
        samples: Returns the samples of a batch; None: the leading dimension of its tensors.
        tokens: Returns the tokens of a batch; None: the elements of its `input_ids`.
        monitor: Gets the rated steps as series.
    """

    window: int = 0
    after: int = 10
    save: Path | None = None
    samples: Count | None = None
    tokens: Count | None = None
    monitor: StepMonitor | None = None

    def __post_init__(self) -> None:
        for name in ("window", "after"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise option_invalid(
                    f"{name} is a number of steps, not {value!r}.",
                    "For example window=5, after=10.",
                )


@dataclasses.dataclass(frozen=True)
class Job:
    """What is trained, and how.

    Attributes:
        trainer: What runs the steps.
        model: What a batch goes through.
        method: The model's method that is called with a batch.
        dtype: The dtype that autocast gives products; empty: that of the operands.
        processes: Processes of the job, each with batches of its own or sharing them with those
            among which the model is divided; None where other divisions are possible.
        uncountable: Why FLOPs cannot be counted; empty where they can.
    """

    trainer: Trainer
    model: nn.Module
    method: str = "__call__"
    dtype: str = ""
    processes: int | None = 1
    uncountable: str = ""


class FetchWatcher(Protocol):
    """Is told of each batch that a loader gives."""

    def fetching(self) -> None:
        """Take note that the loop wants the next batch."""

    def fetched(self, batch: Any, duration: int, /) -> None:
        """Take note of a batch, and of the ns it took."""

    def exhausted(self) -> None:
        """Take note that there is no further batch."""


class _TimedFetches:
    """A loader's iterator that tells of each batch; whatever else it has is the iterator's."""

    def __init__(self, iterator: Iterator[Any], watcher: FetchWatcher) -> None:
        self._iterator = iterator
        self._watcher = watcher

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return _fetched(self._iterator.__next__, self._watcher)

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def watched_loader(
    kind: type, watcher: FetchWatcher, selects: Callable[[Any], bool] = lambda _: True
) -> AbstractContextManager[None]:
    """Tell `watcher` of the batches of selected loaders of a class, until the block ends."""

    def around(original: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
        @functools.wraps(original)
        def __iter__(self: Any) -> Any:  # noqa: N807
            iterator = original(self)
            return _TimedFetches(iterator, watcher) if selects(self) else iterator

        return __iter__

    return _replaced(kind, "__iter__", around)


def watched_next(
    kind: type, watcher: FetchWatcher, selects: Callable[[Any], bool]
) -> AbstractContextManager[None]:
    """Tell `watcher` of what selected iterators of a class return, until the block ends."""

    def around(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(original)
        def __next__(self: Any) -> Any:  # noqa: N807
            if not selects(self):
                return original(self)
            return _fetched(functools.partial(original, self), watcher)

        return __next__

    return _replaced(kind, "__next__", around)


def _fetched(fetch: Callable[[], Any], watcher: FetchWatcher) -> Any:
    """Return the batch that `fetch` gives, having told of it."""
    watcher.fetching()
    began = time.perf_counter_ns()
    try:
        batch = fetch()
    except StopIteration:
        watcher.exhausted()
        raise
    watcher.fetched(batch, time.perf_counter_ns() - began)
    return batch


def _replaced(kind: type, name: str, around: Callable[[Any], Any]) -> AbstractContextManager[None]:
    """Put something around a method of the class that defines it."""
    owner: Any = next(base for base in kind.__mro__ if name in vars(base))
    return replaced([(owner, name, around(vars(owner)[name]))], keep_others=True)
