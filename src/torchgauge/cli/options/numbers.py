"""Numbers on the command line."""

from __future__ import annotations

import argparse

from torchgauge.errors import option_invalid

MOST_BYTES = 2**62  # systems count them in 64 bits


def levels(text: str) -> int:
    """Return a number of levels; argparse reports an invalid one."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of levels")
    return int(text)


def positive(text: str) -> int:
    """Return a whole number of 1 or more."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 1 or more")
    return int(text)


def positives(text: str) -> tuple[int, ...]:
    """Return whole numbers of 1 or more with commas between them."""
    return tuple(positive(part.strip()) for part in text.split(","))


def whole_number(text: str) -> int:
    """Return a whole number of 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of 0 or more")
    return int(text)


def seconds(text: str) -> float:
    """Return a number of seconds above 0; a unit may stand behind it."""
    from torchgauge.quantities import amount

    quantity = amount(text, "s") or amount(f"{text}s", "s")
    if quantity is None or quantity.value <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds above 0")
    return quantity.value


def size(text: str | None) -> int | None:
    """Return bytes ("8GB"). Raises InputError `option-invalid` for anything else."""
    from torchgauge.quantities import amount

    if text is None:
        return None
    quantity = amount(text, "B")
    if quantity is None or not 1 <= quantity.value <= MOST_BYTES:
        raise option_invalid(
            f"'{text}' is not a memory limit.", "Give it with its unit, such as 8GB or 8GiB."
        )
    return int(quantity.value)
