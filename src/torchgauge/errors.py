"""One error type: what happened, why, and what to do, with a stable id and an exit code."""

from __future__ import annotations

import enum
from typing import Any

from torchgauge.visible import visible, visible_lines


class ExitCode(enum.IntEnum):
    """The exit codes of the process (ARCHITECTURE.md, "Exit codes")."""

    DONE = 0
    MEASUREMENT_FAILED = 1
    BAD_INPUT = 2
    THRESHOLD = 3
    INCONCLUSIVE = 4
    NOT_COMPARABLE = 5
    INTERRUPTED = 130


class TorchgaugeError(Exception):
    """The base of every error torchgauge raises on purpose.

    The attributes are as they were given, with what a file or an argument holds; as text the error
    commands no terminal, and only its own parts begin a line.

    Attributes:
        message: What happened.
        id: Stable and machine-readable.
        cause: Why.
        remedy: What to do about it.
        traceback: That of the user's own code where another process raised it.
    """

    exit_code = ExitCode.BAD_INPUT
    """What the command line ends with."""

    def __init__(self, message: str, *, id: str, cause: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.id = id
        self.cause = cause
        self.remedy = remedy
        self.traceback = ""

    def __str__(self) -> str:
        parts = [visible(self.message)]
        for label, text in (("Cause: ", self.cause), ("Remedy: ", self.remedy)):
            if text:
                # Further lines stand below the first one: none can pass for a part of the error.
                indent = "\n" + " " * len(label)
                parts.append(label + visible_lines(text).replace("\n", indent))
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


class BuildError(InputError):
    """What makes the model raised: a factory, or a library's constructor."""


class RecordError(TorchgaugeError):
    """A saved record cannot be read, or would hold a value no record may hold."""


class StoreError(TorchgaugeError):
    """A history's store cannot be opened, read or written."""


class MissingExtraError(TorchgaugeError):
    """An optional library is needed and not installed; the message names the extra."""


class MeasurementError(TorchgaugeError):
    """A probe ran and failed: the model raised, memory ran out, a child process died."""

    exit_code = ExitCode.MEASUREMENT_FAILED
    """What the command line ends with."""


class ModelError(MeasurementError, InputError):
    """The user's own code raised while it was measured; what it raised is the `__cause__`.

    An InputError, since model and inputs are the caller's, and a measurement that failed: the
    command line writes what it has, and ends with that exit code.

    Attributes:
        ran: The Cost of what ran before, where that was being counted.
    """

    ran: Any = None


def text_of(error: BaseException) -> str:
    """Return an error's class and its text in one line; a text that itself raises is left out."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - the user's own class, and an error is being told already
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


SAME_CALL = (
    "Call the model with the same inputs outside torchgauge; its traceback says where it fails."
)


def by_operator(error: BaseException) -> bool:
    """Whether an operator, or torch's own code, raised it: no `raise` of the model's code."""
    import dis  # for a message, and not for --help

    last = error.__traceback__
    if last is None:
        return False
    while last.tb_next is not None:
        last = last.tb_next
    if str(last.tb_frame.f_globals.get("__name__")).partition(".")[0] == "torch":
        return True
    instruction = last.tb_frame.f_code.co_code[last.tb_lasti]
    return dis.opname[instruction] not in ("RAISE_VARARGS", "RERAISE")


def option_conflict(message: str, remedy: str, *, cause: str = "") -> InputError:
    """Return the error for options that do not go together."""
    return InputError(message, id="option-conflict", cause=cause, remedy=remedy)


def option_invalid(message: str, remedy: str, *, cause: str = "") -> InputError:
    """Return the error for a value that an option cannot have."""
    return InputError(message, id="option-invalid", cause=cause, remedy=remedy)


def missing_extra(library: str, extra: str, purpose: str, cause: str = "") -> MissingExtraError:
    """Return the error for an optional library: absent, or for a `cause` not to be imported."""
    failure = "cannot be imported" if cause else "is not installed"
    return MissingExtraError(
        f"{purpose} needs {library}, which {failure}.",
        id="missing-extra",
        cause=cause or f"'{library}' could not be imported.",
        remedy=f"pip install 'torchgauge-profiler[{extra}]'",
    )


# What torchgauge itself calls: their frames are those of an error and not of the user's code.
_LIBRARIES = frozenset(
    (
        *("cloudpickle", "memray", "msgspec", "numpy", "psutil", "pyarrow", "ray", "rich"),
        *("ruptures", "safetensors", "scipy", "sqlalchemy", "timm", "torch", "torchao"),
        *("torchvision", "transformers"),
    )
)


_TORCH_CALLS = ("_wrapped_call_impl", "_call_impl")


def user_traceback(error: TorchgaugeError) -> str:
    """Return the traceback of what the user's own code raised, without torchgauge's frames.

    Empty where none took part but torchgauge, the libraries that it calls and Python's: a file that
    cannot be opened, weights that are damaged.
    """
    import sysconfig
    import traceback
    from pathlib import Path

    original = error.__cause__
    if original is None or error.traceback:  # that of another process is whole
        return error.traceback
    own = str(Path(__file__).parent)
    report = traceback.TracebackException.from_exception(original)
    report.stack = traceback.StackSummary.from_list(
        [frame for frame in report.stack if not frame.filename.startswith(own)]
    )
    paths = sysconfig.get_paths()
    packages = [Path(paths[kind]) for kind in ("purelib", "platlib")]

    def is_users(file: str) -> bool:
        for folder in packages:
            if Path(file).is_relative_to(folder):
                return Path(file).relative_to(folder).parts[0] not in _LIBRARIES
        return not file.startswith((paths["stdlib"], "<frozen "))

    # A model of torch's own layers is the user's, too: its frames say which layer it was.
    users = any(is_users(frame.filename) or frame.name == "_call_impl" for frame in report.stack)
    if not users and not isinstance(original, SyntaxError):
        return ""
    # How torch gets from a layer to its forward is the same in every layer.
    report.stack = traceback.StackSummary.from_list(
        [frame for frame in report.stack if frame.name not in _TORCH_CALLS]
    )
    # Further lines of what was raised stand below its first: none can pass for one of ours.
    return "".join(
        part
        if part.startswith((" ", "Traceback"))
        else part.rstrip("\n").replace("\n", "\n  ") + "\n"
        for part in report.format(chain=False)
    )
