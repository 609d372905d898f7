"""An error on its way from one process to another."""

from __future__ import annotations

from torchgauge.errors import MeasurementError, TorchgaugeError, user_traceback
from torchgauge.records.record import Record


class Failure(Record, frozen=True, kw_only=True):
    """An error of torchgauge's as it travels: `kind` is its class, `traceback` the user's own."""

    kind: str
    id: str
    message: str
    cause: str
    remedy: str
    traceback: str

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
        )

    def error(self) -> TorchgaugeError:
        """Return the error again, of the class it had."""
        kinds = {kind.__name__: kind for kind in TorchgaugeError.__subclasses__()}
        kind = kinds.get(self.kind, MeasurementError)
        error = kind(self.message, id=self.id, cause=self.cause, remedy=self.remedy)
        error.traceback = self.traceback
        return error
