"""Numbers on the command line."""

from __future__ import annotations

import argparse

from torchgauge.errors import InputError

MOST_BYTES = 2**62  # systems count them in 64 bits


def levels(text: str) -> int:
    """Return a number of levels; argparse says what is none."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no number of levels")
    return int(text)


def positive(text: str) -> int:
    """Return a whole number from 1 on."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 1 on")
    return int(text)


def whole_number(text: str) -> int:
    """Return a whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 0 on")
    return int(text)


def seconds(text: str) -> float:
    """Return a number of seconds above 0; a unit may stand behind it."""
    from torchgauge.quantities import amount

    quantity = amount(text, "s") or amount(f"{text}s", "s")
    if quantity is None or quantity.value <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return quantity.value


def size(text: str | None) -> int | None:
    """Return bytes ("8GB"). Raises InputError `option-invalid` for what is no size."""
    from torchgauge.quantities import amount

    if text is None:
        return None
    quantity = amount(text, "B")
    if quantity is None or not 1 <= quantity.value <= MOST_BYTES:
        raise InputError(
            f"'{text}' is no memory limit.",
            id="option-invalid",
            remedy="Give it with its unit, such as 8GB or 8GiB.",
        )
    return int(quantity.value)
