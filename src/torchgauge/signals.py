"""Context managers that no signal interrupts while they enter or exit: handlers wait.

A handler may raise between any two lines of Python (Ctrl-C's does), in an exit too; what that exit
had still to put back would stay changed for ever.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2")
_NUMBERS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))

P = ParamSpec("P")
T = TypeVar("T")


class HeldBack:
    """While entered, what handlers in Python would do waits for the end, and is done in that order.

    Only in the main thread, which alone runs handlers: elsewhere no signal raises anything. A
    handler that is set meanwhile stays. Costs some 20 µs.
    """

    def __init__(self) -> None:
        self._exited = False
        self._pending: list[int] = []
        self.handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        """Take the place of the handlers there are."""
        if threading.current_thread() is threading.main_thread():
            try:
                for number in _NUMBERS:
                    handler = signal.getsignal(number)
                    if callable(handler):
                        self.handlers[number] = handler
                        signal.signal(number, self._take)
            except BaseException:  # of a handler whose place was not taken yet
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        """Give the handlers their place back, and run those of the signals that came."""
        try:
            self._give_back()
        except BaseException:  # of a signal that came meanwhile, whose handler was back already
            self._give_back()
            raise
        finally:
            self._exited = True
            run_all(functools.partial(self._handle, number) for number in self._pending)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._exited:  # something else has kept this as a handler
            self.handlers[number](number, frame)
        else:
            self._pending.append(number)

    def _give_back(self) -> None:
        for number, handler in self.handlers.items():
            if signal.getsignal(number) == self._take:
                signal.signal(number, handler)

    def _handle(self, number: int) -> None:
        handler = self.handlers[number]
        if callable(handler):
            handler(number, None)
        else:  # what was put back meanwhile is the system's own, which has its place again
            signal.raise_signal(number)


def handler_of(number: int) -> Any:
    """Return what a signal calls, also while it is held back."""
    handler: Any = signal.getsignal(number)
    while (held := _holder(handler)) is not None:
        handler = held.handlers[number]
    return handler


def set_handler(number: int, handler: Any) -> None:
    """Set what a signal calls; while it is held back, what it calls afterwards."""
    current: Any = signal.getsignal(number)
    innermost: HeldBack | None = None
    while (held := _holder(current)) is not None:
        innermost, current = held, held.handlers[number]
    if innermost is None:
        signal.signal(number, handler)
    else:
        innermost.handlers[number] = handler


def raised_by_handler(error: BaseException) -> bool:
    """Return whether a signal's handler raised the error, wherever it interrupted the program."""
    codes = {getattr(handler_of(number), "__code__", None) for number in _NUMBERS} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _holder(handler: Any) -> HeldBack | None:
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, HeldBack) else None


class _Restoring(Generic[T]):
    """A context manager during whose enter and exit no signal is handled; in its block they are."""

    def __init__(self, manager: contextlib.AbstractContextManager[T, bool | None]) -> None:
        self._manager = manager
        self._entered = False

    def __enter__(self) -> T:
        try:
            with HeldBack():
                value = self._manager.__enter__()
                self._entered = True
        except BaseException as error:  # with a signal's, the change is made and must be undone
            if self._entered:
                self.__exit__(type(error), error, error.__traceback__)
            raise
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return uninterrupted(lambda: self._manager.__exit__(kind, error, trace))


def restoring(
    function: Callable[P, Iterator[T]],
) -> Callable[P, contextlib.AbstractContextManager[T, bool | None]]:
    """Make a context manager of a generator, as contextmanager does, that is not interrupted.

    No signal is handled in what it does before and after its block: a change and the note of how
    to undo it are one step, and so is the undoing. The block itself is interrupted as ever.
    """
    manager = contextlib.contextmanager(function)

    @functools.wraps(function)
    def make(
        *args: P.args, **kwargs: P.kwargs
    ) -> contextlib.AbstractContextManager[T, bool | None]:
        return _Restoring(manager(*args, **kwargs))

    return make


@restoring
def started(recorder: Any) -> Iterator[None]:
    """Start what has `start` and `stop`, and stop it when the block ends."""
    recorder.start()
    try:
        yield
    finally:
        recorder.stop()


@restoring
def replaced(
    attributes: Iterable[tuple[Any, str, Any]], *, keep_others: bool = False
) -> Iterator[None]:
    """Give each owner, a class or a module, an attribute of this name until the block ends.

    With `keep_others` what somebody else has put around it meanwhile stays, with it inside.
    """
    before: list[tuple[Any, str, Any, Any]] = []
    try:
        for owner, name, attribute in attributes:
            before.append((owner, name, vars(owner).get(name), attribute))
            setattr(owner, name, attribute)
        yield
    finally:
        for owner, name, original, attribute in reversed(before):
            if keep_others and vars(owner).get(name) is not attribute:
                continue
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def uninterrupted(step: Callable[[], T]) -> T:
    """Run a step once while no signal is handled, also where one came before that was so."""
    begun = False

    def once() -> T:
        nonlocal begun
        begun = True
        return step()

    try:
        with HeldBack():
            return once()
    except BaseException:  # also a handler's, faster than we in taking its place
        if not begun:
            with HeldBack():
                once()
        raise


def run_all(steps: Iterable[Callable[[], object]]) -> None:
    """Run all steps, whatever they raise; then raise one of it, an interrupt before an error."""
    raised: BaseException | None = None
    for step in steps:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - the others are run before it counts
            interrupt = not isinstance(error, Exception)
            if raised is None or (interrupt and isinstance(raised, Exception)):
                raised = error
    if raised is not None:
        raise raised
