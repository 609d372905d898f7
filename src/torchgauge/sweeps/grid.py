"""The grid: axes as users write them, and the cells in the order in which they are measured."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torchgauge.errors import InputError
from torchgauge.records.sweep import AXES, CellSettings
from torchgauge.similar import did_you_mean, similar
from torchgauge.targets.precisions import PRECISIONS, plain_name
from torchgauge.targets.quantization import MODES
from torchgauge.targets.runtimes.runtime_options import LEVELS, RUNTIMES

NUMBERS = ("batch", "threads", "interop", "seq_len")
WORDS = {
    "precision": (*PRECISIONS, "int8"),
    "compile": MODES,
    "optimization": tuple(LEVELS),
    "runtime": RUNTIMES,
}
SWITCH = {"yes": True, "no": False, "true": True, "false": False}
AUTO = "auto"
# A row of batches that nothing stopped ends here: 65,536.
LARGEST_POWER = 16


@dataclasses.dataclass(frozen=True)
class Grid:
    """The values of each axis in the order given; `automatic` doubles the batch until it ends."""

    values: Mapping[str, tuple[Any, ...]]
    automatic: bool = False

    @staticmethod
    def from_axes(axes: Mapping[str, Any]) -> Grid:
        """Return the grid of axes: a value, several, or text as "1,2,4"; batch may be "auto".

        Raises InputError `axis-unknown`, `axis-invalid`.
        """
        automatic = axes.get("batch") == AUTO
        values = {name: _values(name, value) for name, value in axes.items() if value is not None}
        if automatic:
            values["batch"] = tuple(2**power for power in range(LARGEST_POWER + 1))
        ordered = {name: values[name] for name in AXES if name in values}
        return Grid(ordered, automatic)

    def cells(self) -> Iterator[CellSettings]:
        """Yield all settings: small batches first, those that are compared next to each other."""
        values = dict(self.values)
        batches = sorted(values.pop("batch", (None,)), key=lambda batch: batch or 0)
        rows = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
        for batch, row in itertools.product(batches, rows):
            yield CellSettings(batch=batch, **row)

    def as_texts(self) -> dict[str, tuple[str, ...]]:
        """Return the axes as texts, for the record."""
        texts = {name: tuple(map(_text, values)) for name, values in self.values.items()}
        return texts | ({"batch": (AUTO,)} if self.automatic else {})


def _values(name: str, axis_value: Any) -> tuple[Any, ...]:
    if name not in AXES:
        raise InputError(
            f"A sweep has no axis '{name}'.",
            id="axis-unknown",
            cause="The axes are " + ", ".join(AXES) + ".",
            remedy=did_you_mean(similar(name, AXES, limit=1), "Give one of them."),
        )
    if name == "batch" and axis_value == AUTO:
        return ()
    parts = axis_value.split(",") if isinstance(axis_value, str) else axis_value
    if not isinstance(parts, Iterable):
        parts = (parts,)
    values = tuple(dict.fromkeys(_value(name, value) for value in parts))
    if not values:
        raise _invalid(name, "", "at least one value")
    return values


def _value(name: str, value: Any) -> Any:
    text = str(value).strip().lower()
    if name in NUMBERS:
        if isinstance(value, bool) or not text.isdecimal() or not int(text):
            raise _invalid(name, value, "a whole number of 1 or more")
        return int(text)
    if name == "channels_last":
        if text not in SWITCH:
            raise _invalid(name, value, "yes or no")
        return SWITCH[text]
    if name == "precision":
        text = plain_name(text)
    if name in WORDS and text not in WORDS[name]:
        raise _invalid(name, value, f"one of {', '.join(WORDS[name])}")
    return text


def _text(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _invalid(name: str, value: object, description: str) -> InputError:
    return InputError(
        f"'{value}' is not a value of the axis {name}.",
        id="axis-invalid",
        cause=f"It takes {description}.",
        remedy=f"Give {name} as {description}.",
    )
