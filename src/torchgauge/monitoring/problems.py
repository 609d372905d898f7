"""What a monitor could not do: told once as a warning, counted in its status, never raised."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from torchgauge.errors import MeasurementError, text_of
from torchgauge.monitoring.meter import Call
from torchgauge.monitoring.series import Series
from torchgauge.records.monitoring.window import Problem, Window

# What libraries repeat of an address and is a secret: a user, a password, the fields of a query.
_SECRETS = re.compile(r"(?<=://)[^\s'\"]*@|\?[^\s'\"=]+=[^\s'\"]*")

LONGEST = 500  # characters of a message


class Problems:
    """The problems of one monitor by part; safe to use from every thread.

    No lock is taken: the handler of a signal would wait for the thread that it has interrupted.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._times: dict[str, itertools.count[int]] = {}
        self._problems: dict[str, Problem] = {}

    def all(self) -> tuple[Problem, ...]:
        """Return the problems so far, one a part."""
        return tuple(self._problems.values())

    def add(self, part: str, error: BaseException) -> None:
        """Note an error; the first of each part is a warning, too."""
        message = _SECRETS.sub("", text_of(error)[: 4 * LONGEST])[:LONGEST]
        times = next(self._times.setdefault(part, itertools.count(1)))
        self._problems[part] = Problem(part=part, message=message, times=times, last=time.time())
        if times == 1:
            text = f"The monitor '{self._name}' goes on without its {part}: {message}"
            # Warnings as errors, or no stderr to warn on, must not end what is monitored.
            with contextlib.suppress(Exception):
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    @contextlib.contextmanager
    def noting(self, part: str) -> Iterator[None]:
        """Note what the block raises in place of raising it, and that the part works again."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - nothing of a monitor's reaches the model
            self.add(part, error)
        else:
            problem = self._problems.get(part)
            if problem is not None and not problem.solved:
                self._problems[part] = msgspec.structs.replace(problem, solved=True)


# One call in so many has its batch read: it takes 1 µs.
SIZES_EVERY = 100
CountTokens = Callable[[tuple[Any, ...], dict[str, Any], Any], int]


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
        compiling: Returns None unless torch.compile looks at what is called; then no layers.
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
        self.compiling: Callable[[], object] = lambda: None

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


LAST_WAIT = 5.0  # seconds that the end of a monitor waits for its receivers


class Batch(NamedTuple):
    """The windows of a monitor that ended together.

    Attributes:
        monitor: The monitor's name.
        process: The process, as `ProcessState.identity`.
        windows: One a series, since the last batch.
        totals: The same series since the process began.
    """

    monitor: str
    process: str
    windows: tuple[Window, ...]
    totals: tuple[Window, ...]


class Receiver(Protocol):
    """Where windows go: a history, an OTLP endpoint, a tracker, a function."""

    @property
    def part(self) -> str:
        """Its name in the monitor's status."""
        ...

    @property
    def backlog(self) -> int:
        """How many batches wait for it at most while it fails; 1 where a batch has all earlier."""
        ...

    def receive(self, batch: Batch) -> None:
        """Take a batch; what it raises is noted, and the batch comes again with the next one."""
        ...


class Delivery:
    """Hands batches to a receiver, in order; those that it refuses wait, the oldest give way."""

    def __init__(self, receiver: Receiver, problems: Problems) -> None:
        self._receiver, self._problems = receiver, problems
        self.after_fork()

    def after_fork(self) -> None:
        """Begin again, as a forked process must: what waits is its parent's."""
        self._lock = threading.RLock()
        self._pending: deque[Batch] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended = False

    def send(self, batch: Batch) -> None:
        """Hand over a batch; returns at once."""
        self._pending.append(batch)
        self._make_room()
        if self._thread is None:
            name = f"torchgauge-monitor-{self._receiver.part}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            with contextlib.suppress(RuntimeError):  # there are too many, or the program ends
                thread.start()
                self._thread = thread
        self._wake.set()

    def _make_room(self) -> None:
        with self._lock:
            while len(self._pending) > self._receiver.backlog:
                self._pending.popleft()
                if self._receiver.backlog > 1:
                    self._lose("oldest windows", "More windows waited than are kept.")

    def end(self) -> None:
        """Hand over what waits, and end."""
        self._ended = True
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Wait until it has ended, for a while at most."""
        if self._thread is None:
            if self._pending:  # as a program ends no thread begins
                self._run()
        elif self._thread is not threading.current_thread():
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._lose("last windows", "They did not get there before the end.")

    def _lose(self, windows: str, cause: str) -> None:
        error = MeasurementError(cause, id="windows-lost")
        self._problems.add(f"{windows} for {self._receiver.part}", error)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            with self._problems.noting(self._receiver.part):
                while self._pending:
                    self._deliver()
            if self._ended:
                return

    def _deliver(self) -> None:
        with self._lock:
            batch = self._pending.popleft()
        try:
            self._receiver.receive(batch)
        except BaseException:  # a function may end the thread
            self._pending.appendleft(batch)
            self._make_room()
            raise


class FunctionReceiver:
    """Calls a function with the windows of this process, as alerts do."""

    part = "function"
    backlog = 120

    def __init__(self, function: Callable[[tuple[Window, ...]], object]) -> None:
        self._function = function

    def receive(self, batch: Batch) -> None:
        """Call the function."""
        self._function(batch.windows)
