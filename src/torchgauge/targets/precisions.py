"""The names of precisions: ours, and those that torch and others give them."""

from __future__ import annotations

from typing import Any

from torchgauge.errors import InputError
from torchgauge.similar import did_you_mean, similar

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
    question = did_you_mean(similar(plain, PRECISIONS, limit=1, cutoff=0.7), "")
    raise InputError(
        f"Unknown precision '{name}'.",
        id="precision-unknown",
        cause=f"Precisions are {', '.join(PRECISIONS)}.",
        remedy=f"{question} Choose one of them, or none to leave the model as it is.".lstrip(),
    )


def plain_name(name: object) -> str:
    """Return our name if there is one, otherwise the name in lower case."""
    lower = str(name).strip().lower().removeprefix("torch.")
    return OTHER_NAMES.get(lower, lower)


def name_of(value: Any) -> str:
    """Return the name of a function or a class, for any other object that of its class.

    An object may answer anything when it is asked for a name, or raise.
    """
    try:
        name = value.__qualname__
    except Exception:  # noqa: BLE001 - it is the user's own code
        name = None
    return name if isinstance(name, str) else type(value).__qualname__
