"""Turns a measurement's error into one that is of the model's exception type too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from torchgauge.errors import MeasurementError, TorchgaugeError

P = ParamSpec("P")
T = TypeVar("T")


class RaisedByModelError(MeasurementError):
    """A MeasurementError of which subclasses are of its cause's type too."""

    def __reduce__(self) -> tuple[object, ...]:
        """Travel as a MeasurementError: another process does not have the subclass."""
        plain = MeasurementError(self.message, id=self.id, cause=self.cause, remedy=self.remedy)
        return plain.__reduce__()


def raises_as_the_model(function: Callable[P, T]) -> Callable[P, T]:
    """Let `except ValueError` catch the error of a model that raised a ValueError."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except RaisedByModelError:
            raise
        except MeasurementError as error:
            raise _of_both_types(error) from error.__cause__

    return call


def _of_both_types(error: MeasurementError) -> MeasurementError:
    """Return the error as one of its cause's type too, where Python allows such a type."""
    original = error.__cause__
    if not isinstance(original, Exception) or isinstance(original, TorchgaugeError):
        return error
    kind = type(original)
    try:
        combined_type: Any = type(
            kind.__name__, (RaisedByModelError, kind), {"__module__": kind.__module__}
        )
        combined_error: MeasurementError = combined_type.__new__(combined_type)
    except TypeError:  # final, of another layout, or not to be made without arguments
        return error
    combined_error.__dict__.update(error.__dict__)
    combined_error.args = error.args
    return combined_error
