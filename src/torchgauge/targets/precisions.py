"""The names of precisions: ours, and those that torch and others give them."""

from __future__ import annotations

import difflib

from torchgauge.errors import InputError

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
OTHER_NAMES = {
    "float32": "fp32",
    "float": "fp32",
    "single": "fp32",
    "bfloat16": "bf16",
    "bfloat": "bf16",
    "float16": "fp16",
    "half": "fp16",
}


def precision_named(name: object) -> str:
    """Return our name of a precision: of "bfloat16", "torch.bfloat16" or the dtype itself "bf16".

    Raises InputError `precision-unknown`.
    """
    plain = plain_name(name)
    if plain in PRECISIONS:
        return plain
    near = difflib.get_close_matches(plain, PRECISIONS, n=1, cutoff=0.7)
    question = f"Did you mean {near[0]}? Else choose" if near else "Choose"
    raise InputError(
        f"Unknown precision '{name}'.",
        id="precision-unknown",
        cause=f"Precisions are {', '.join(PRECISIONS)}.",
        remedy=f"{question} one of them, or none to leave the model as it is.",
    )


def plain_name(name: object) -> str:
    """Return our name where there is one, else the name in lower case."""
    lower = str(name).strip().lower().removeprefix("torch.")
    return OTHER_NAMES.get(lower, lower)
