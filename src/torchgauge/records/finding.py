"""A finding: what costs time or memory, or distorts a measurement, with evidence and a remedy."""

from __future__ import annotations

import builtins
from typing import Any, Generic, Literal, TypeVar

import msgspec

from torchgauge.errors import InputError, MeasurementError, TorchgaugeError, user_traceback
from torchgauge.records.record import Record

T = TypeVar("T")


class Failure(Record, frozen=True, kw_only=True):
    """An error of torchgauge's as it travels: `kind` is its class, `traceback` the user's own.

    `raised` and `arguments` make the error again that the user's code raised, where it is one of
    Python's own with texts alone; the class of any other may be nothing but a name here.
    """

    kind: str
    id: str
    message: str
    cause: str
    remedy: str
    traceback: str
    raised: str = ""
    arguments: tuple[str, ...] = ()

    @staticmethod
    def from_error(error: TorchgaugeError) -> Failure:
        """Return `error` as a record, to raise it in another process."""
        return Failure(
            kind=type(error).__name__,
            id=error.id,
            message=error.message,
            cause=error.cause,
            remedy=error.remedy,
            traceback=user_traceback(error),
            **_raised(error.__cause__),
        )

    def error(self) -> TorchgaugeError:
        """Return the error again, of the class it had."""
        kinds = (*TorchgaugeError.__subclasses__(), *InputError.__subclasses__())
        named = {kind.__name__: kind for kind in kinds}
        kind: type[TorchgaugeError] = named.get(self.kind, MeasurementError)
        error = kind(self.message, id=self.id, cause=self.cause, remedy=self.remedy)
        error.traceback = self.traceback
        raised = _of_python(self.raised)
        if raised is not None:
            error.__cause__ = raised(*self.arguments)
        return error


class Answer(msgspec.Struct, Generic[T], frozen=True):
    """What another process answers: what its work returned, or the error that ended it."""

    value: T | None = None
    failure: Failure | None = None

    def result(self) -> T:
        """Return the value or raise the error; msgspec.ValidationError where there is neither."""
        if self.failure is not None:
            raise self.failure.error()
        if self.value is None:
            raise msgspec.ValidationError("It holds neither a result nor an error.")
        return self.value


def _raised(cause: BaseException | None) -> dict[str, Any]:
    if cause is None or _of_python(type(cause).__name__) is not type(cause):
        return {}
    # Those with more arguments, such as UnicodeDecodeError, take more than texts.
    texts = len(cause.args) <= 1 and all(isinstance(argument, str) for argument in cause.args)
    return {"raised": type(cause).__name__, "arguments": cause.args} if texts else {}


def _of_python(name: str) -> type[Exception] | None:
    """Return the exception that Python itself has by this name, and nothing else that it has."""
    kind = getattr(builtins, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None


Severity = Literal["info", "warning", "serious"]


class Finding(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One finding; `id` is stable.

    Of a machine, "serious": figures are most likely wrong. "warning": they scatter more, or are a
    few percent off. "info": nothing is wrong, and who reads the figures should know it. Of a model
    or a trace they say how much of the time or memory it is about.

    Attributes:
        id: The rule's name.
        severity: How much it matters.
        title: What it is, in one line.
        evidence: The figures that it is based on.
        remedy: What to do about it.
        time: Seconds that it speaks of, of the step or of the trace's window.
        worth: Seconds that the remedy could save at most; None where that is not known.
        path: The qualified name of the layer that it is about.
        node: The row of the tree to look at.
        device: The number of the device that it is about, in a trace; of several the one with most.
        search: What to look for in the tree.
        view: The view of the page that details it.
        source: Where the remedy is documented.
    """

    id: str
    severity: Severity
    title: str
    evidence: str
    remedy: str = ""
    time: float | None = None
    worth: float | None = None
    path: str = ""
    node: int | None = None
    device: int | None = None
    search: str = ""
    view: str = ""
    source: str = ""
