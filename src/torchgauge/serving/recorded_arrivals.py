"""Arrival times from a file: a time in seconds on each line."""

from __future__ import annotations

from pathlib import Path

from torchgauge.errors import InputError

MOST_BYTES = 256 * 2**20


def recorded_times(path: Path | None) -> tuple[float, ...]:
    """Return the times of a file; none without one.

    Blank lines and lines that begin with # are left out.

    Raises InputError `arrivals-invalid`.
    """
    if path is None:
        return ()
    times = []
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _invalid(path, f"It has more than {MOST_BYTES:,} bytes.")
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = line.strip()
            if text and not text.startswith("#"):
                times.append(_seconds(text, path, number))
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(path, str(error)) from error
    return tuple(times)


def _seconds(text: str, path: Path, number: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise _invalid(path, f"Line {number} is {text[:40]!r}.") from None


def _invalid(path: Path, cause: str) -> InputError:
    return InputError(
        f"{path.name} is not a file of arrival times.",
        id="arrivals-invalid",
        cause=cause,
        remedy="Write a time in seconds on each line.",
    )
