"""What a load reads: bodies, or prompts in an API's own form, and recorded arrival times."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from torchgauge.errors import InputError
from torchgauge.serving.client.address import Address
from torchgauge.serving.client.dialect import Prompt
from torchgauge.serving.client.dialects.every import dialect_named
from torchgauge.serving.load_options import LoadOptions

MOST_BYTES = 256 * 2**20
WORDS = ("load", "rate", "queue", "batch", "token", "layer", "model", "time")
ASKING = 10.0


def request_items(address: Address, options: LoadOptions) -> tuple[Address, tuple[bytes, ...]]:
    """Return the address with the API's path, and the bodies that requests take in turn.

    Raises InputError `body-unreadable`, and `body-missing` where an API needs prompts.
    """
    dialect = dialect_named(options.api)
    served = address.with_default_path(dialect.path)
    if options.body is not None:
        return served, _bodies(options.body)
    if dialect.body is None:
        if options.prompts is None and options.tokens is None:
            return served, (b"",)
        raise InputError(
            f"The API {options.api} takes no prompts.",
            id="option-conflict",
            remedy="Give the body of its requests: --body FILE.",
        )
    model = _model(address, dialect.model_path) if dialect.model_path else ""
    return served, tuple(dialect.body(prompt, model) for prompt in _prompts(options))


def _bodies(path: Path) -> tuple[bytes, ...]:
    """Return a file as one body; with a JSON value on each of several lines, each as one."""
    data = _read(path)
    lines = [line.strip() for line in data.splitlines() if line.strip()]
    if len(lines) > 1 and all(map(_is_json, lines)):
        return tuple(lines)
    return (data.strip(),)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _prompts(options: LoadOptions) -> list[Prompt]:
    if options.prompts is not None:
        lines = _read(options.prompts).decode(errors="replace").splitlines()
        prompts = [Prompt(text=line.strip()) for line in lines if line.strip()]
        if not prompts:
            raise _unreadable(options.prompts, "It is empty.")
        return prompts
    if options.tokens is None:
        raise InputError(
            f"The API {options.api} needs prompts.",
            id="body-missing",
            remedy="Give --tokens 128:64, --prompts FILE or --body FILE.",
        )
    count, answer = options.tokens
    return [
        Prompt(text=" ".join(WORDS[(start + n) % len(WORDS)] for n in range(count)), tokens=answer)
        for start in range(len(WORDS))
    ]


def _model(address: Address, path: str) -> str:
    """Return the first model that an endpoint lists; empty where it lists none."""
    url = f"{address.scheme}://{address.authority}{path}"
    try:
        with urllib.request.urlopen(url, timeout=ASKING) as answer:  # noqa: S310 - checked before
            listed = json.loads(answer.read(2**20))
        return str(listed["data"][0]["id"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _unreadable(path, f"It has more than {MOST_BYTES:,} bytes.")
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error


def _unreadable(path: Path, cause: str) -> InputError:
    return InputError(
        f"{path} cannot be sent.",
        id="body-unreadable",
        cause=cause,
        remedy="Name a file that can be read.",
    )


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
            raise _not_times(path, f"It has more than {MOST_BYTES:,} bytes.")
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = line.strip()
            if text and not text.startswith("#"):
                times.append(_seconds(text, path, number))
    except (OSError, UnicodeDecodeError) as error:
        raise _not_times(path, str(error)) from error
    return tuple(times)


def _seconds(text: str, path: Path, number: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise _not_times(path, f"Line {number} is {text[:40]!r}.") from None


def _not_times(path: Path, cause: str) -> InputError:
    return InputError(
        f"{path.name} is not a file of arrival times.",
        id="arrivals-invalid",
        cause=cause,
        remedy="Write a time in seconds on each line.",
    )
