"""One error type: what happened, why, and what to do, with a stable id and an exit code."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What the process says when it ends (ARCHITECTURE.md, "Exit codes")."""

    DONE = 0
    MEASUREMENT_FAILED = 1
    BAD_INPUT = 2
    THRESHOLD = 3
    INCONCLUSIVE = 4
    NOT_COMPARABLE = 5
    INTERRUPTED = 130


class TorchgaugeError(Exception):
    """The base of every error torchgauge raises on purpose.

    `id` is stable and machine-readable, `cause` says why, `remedy` what to do about it.
    `traceback` is that of the user's own code where another process raised it.
    """

    exit_code = ExitCode.BAD_INPUT

    def __init__(self, message: str, *, id: str, cause: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.id = id
        self.cause = cause
        self.remedy = remedy
        self.traceback = ""

    def __str__(self) -> str:
        parts = [self.message]
        if self.cause:
            parts.append(f"Cause: {self.cause}")
        if self.remedy:
            parts.append(f"Remedy: {self.remedy}")
        return "\n".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        rebuild = (type(self), self.message, self.id, self.cause, self.remedy)
        return _rebuild, rebuild


def _rebuild(
    kind: type[TorchgaugeError], message: str, id: str, cause: str, remedy: str
) -> TorchgaugeError:
    return kind(message, id=id, cause=cause, remedy=remedy)


class InputError(TorchgaugeError):
    """What the user gave cannot be used: a target, an input, an option, a file."""


class RecordError(TorchgaugeError):
    """A saved record cannot be read, or would hold a value no record may hold."""


class StoreError(TorchgaugeError):
    """A history's store cannot be opened, read or written."""


class MissingExtraError(TorchgaugeError):
    """An optional library is needed and not installed; the message names the extra."""


class MeasurementError(TorchgaugeError):
    """A probe ran and failed: the model raised, memory ran out, a child process died."""

    exit_code = ExitCode.MEASUREMENT_FAILED


def text_of(error: BaseException) -> str:
    """Return an error's class and its text in one line; a text that itself raises is left out."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - the user's own class, and an error is being told already
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def missing_extra(library: str, extra: str, purpose: str) -> MissingExtraError:
    """Return the error for an absent optional library."""
    return MissingExtraError(
        f"{purpose} needs {library}, which is not installed.",
        id="missing-extra",
        cause=f"'{library}' could not be imported.",
        remedy=f"pip install 'torchgauge[{extra}]'",
    )


def user_traceback(error: TorchgaugeError) -> str:
    """Return the traceback of what the user's own code raised, without torchgauge's frames.

    Empty where none took part but torchgauge and Python's library: a file that cannot be opened.
    """
    import sysconfig
    import traceback
    from pathlib import Path

    original = error.__cause__
    if original is None:
        return error.traceback
    own = str(Path(__file__).parent)
    report = traceback.TracebackException.from_exception(original)
    report.stack = traceback.StackSummary.from_list(
        [frame for frame in report.stack if not frame.filename.startswith(own)]
    )
    paths = sysconfig.get_paths()
    others = [
        frame.filename
        for frame in report.stack
        if not frame.filename.startswith(paths["stdlib"])
        or frame.filename.startswith((paths["purelib"], paths["platlib"]))
    ]
    if not others and not isinstance(original, SyntaxError):
        return ""
    return "".join(report.format(chain=False))
