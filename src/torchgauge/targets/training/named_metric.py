"""The user's metric by its name, so that a fresh process can import it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torchgauge.errors import InputError
from torchgauge.targets.training.named_training import function_named


@dataclasses.dataclass(frozen=True)
class NamedMetric:
    """A function file.py:function or module:function that takes the model's outputs."""

    spec: str

    @staticmethod
    def from_spec(spec: str) -> NamedMetric:
        """Return the metric of that name; raises InputError `metric-unknown` and as importing."""
        if ":" not in spec:
            raise InputError(
                f"Unknown metric '{spec}'.",
                id="metric-unknown",
                cause="It is not the name of a function in a file or module.",
                remedy="Give --metric file.py:function, taking the outputs and returning a number.",
            )
        function_named(spec)  # a mistake shows now, not after minutes
        return NamedMetric(spec)

    def __call__(self, outputs: Any) -> float:
        """Call the function of that name."""
        metric: Callable[..., Any] = function_named(self.spec)
        return float(metric(outputs))
