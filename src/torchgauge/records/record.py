"""The base of all records: frozen structs of finite numbers and encodable text."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from torchgauge.errors import RecordError, TorchgaugeError, user_traceback
from torchgauge.records import rendering

# No quantity is as large; products and squares of smaller ones are still finite.
LARGEST = 1e60
# Most JSON readers refuse larger integers; addresses need the whole range.
LARGEST_INTEGER = 2**64
_LIMITS: dict[type, float] = {float: LARGEST, int: LARGEST_INTEGER}
How = Literal["measured", "counted", "estimated"]
# How far an interval reaches: calls of one process, processes that ran one after the other, or
# those and what the host remembers of earlier runs.
IntervalScope = Literal["process", "runs", "calibrated"]
# What torch did about gradients during a call, by the name of its context manager.
GradMode = Literal["inference_mode", "no_grad", "enable_grad"]


class UnfitError(RecordError, ValueError):
    """What a record may not hold; msgspec adds the path of the field where it is decoded."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all result types: SI units, `None` for unknown, finite numbers only.

    Raises RecordError `not-finite` at construction: encoded as JSON a NaN would become null,
    which reads as "unknown" and would be a lie. Half a character (a lone surrogate), which a text
    of Python's may hold and no file can, becomes its escape of six ASCII characters.

    Printed it is its summary, its `repr` one line of that, and a notebook shows it as HTML.
    """

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if _has_surrogate(value):
                msgspec.structs.force_setattr(self, name, _with_escapes(value))
            if not _finite(value):
                raise UnfitError(
                    f"{type(self).__name__}.{name} would hold a NaN or an infinity, or a "
                    "implausibly large number.",
                    id="not-finite",
                    cause="Such a number is not a result; unknown values are None.",
                    remedy="Please report it where a measurement gave it.",
                )

    def __str__(self) -> str:
        return rendering.text(self, "console")

    def __repr__(self) -> str:
        return rendering.text(self, "line")

    def __rich_console__(self, _console: Any, options: Any) -> list[Any]:
        return rendering.segments(self, "console", options.max_width)

    def _repr_html_(self) -> str:
        return rendering.text(self, "notebook")


def _finite(value: object) -> bool:
    if isinstance(value, float):
        return abs(value) < LARGEST  # a NaN is not
    if isinstance(value, int):
        return abs(value) < LARGEST_INTEGER
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, tuple):
        return True
    types = set(map(type, value))
    if types == {int}:  # counts of a histogram: read by the thousand
        return bool(min(value) > -LARGEST_INTEGER and max(value) < LARGEST_INTEGER)
    types -= {type(None)}
    if len(types) == 1 and (limit := _LIMITS.get(*types)):  # long ones: durations
        return all(abs(number) < limit for number in value if number is not None)
    return not _has_any(types, (float, int, tuple, dict)) or all(map(_finite, value))


def _has_any(types: set[type], bases: tuple[type, ...]) -> bool:
    return any(issubclass(kind, bases) for kind in types)


def encodable(text: str) -> str:
    """Return the text with escapes in place of halves of characters (lone surrogates)."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _has_surrogate(value: object) -> bool:
    if isinstance(value, str):
        return not value.isascii() and encodable(value) != value
    if isinstance(value, dict):
        return any(map(_has_surrogate, value.items()))
    if not isinstance(value, tuple):
        return False
    types = set(map(type, value))
    if types <= {int, float}:
        return False
    if types == {str}:  # long ones: fates of requests
        return _has_surrogate("".join(value))
    return _has_any(types, (str, tuple, dict)) and any(map(_has_surrogate, value))


def _with_escapes(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, tuple):
        return tuple(_with_escapes(item) for item in value)
    if isinstance(value, dict):
        return {_with_escapes(key): _with_escapes(item) for key, item in value.items()}
    return value


class Interval(Record, frozen=True, kw_only=True):
    """A confidence interval; `short` where it is wider than requested.

    `scope` says of which repetitions it is, None where the figure is not one that is repeated:
    "process" of calls in this process, while it is unknown by how much runs differ; "runs" of
    processes that ran one after the other; "calibrated" of runs as this host has seen them differ.
    """

    low: float
    high: float
    confidence: float = 0.95
    short: bool = False
    scope: IntervalScope | None = None

    @property
    def half_width(self) -> float:
        """Half of high − low, in the unit of the figure."""
        return (self.high - self.low) / 2


class MeasurementWarning(Record, frozen=True, kw_only=True):
    """Something the reader of a figure must know; a value on the record, never a print.

    `failed` says that the probe gave no result; `cause` and `remedy` are then the error's, and
    `traceback` is that of the user's own code.
    """

    id: str
    message: str
    probe: str = ""
    failed: bool = False
    cause: str = ""
    remedy: str = ""
    traceback: str = ""

    @staticmethod
    def from_error(error: TorchgaugeError, probe: str, prefix: str = "") -> MeasurementWarning:
        """Return the warning that `probe` failed with `error`; `prefix` begins its message."""
        return MeasurementWarning(
            id=error.id,
            message=prefix + error.message,
            probe=probe,
            failed=True,
            cause=error.cause,
            remedy=error.remedy,
            traceback=user_traceback(error),
        )
