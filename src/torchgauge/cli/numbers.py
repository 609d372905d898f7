"""Numbers on the command line."""

from __future__ import annotations

import argparse


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
