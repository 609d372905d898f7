"""How well a training step uses its device: model and hardware FLOPs utilization (MFU, HFU)."""

from __future__ import annotations

from typing import Literal

from torchgauge.records.record import How, Interval, Record


class PeakUsed(Record, frozen=True, kw_only=True):
    """The peak that a utilization is a share of: dense products on one device.

    Attributes:
        device: Its name.
        dtype: The dtype in which most of the products run, "tf32" where float32 is rounded to it.
        flops_per_second: Its peak in that dtype.
        source: What the vendor prints, or what was measured on this machine.
        document: The vendor's document, or how it was measured.
        share: The part of the model's products that run in this dtype.
    """

    device: str
    dtype: str
    flops_per_second: float
    source: Literal["datasheet", "measured"]
    document: str = ""
    share: float = 1.0


class FormulaPart(Record, frozen=True, kw_only=True):
    """One term of the field's formula: FLOPs by the formula and as counted, and why they differ."""

    name: Literal["weights", "attention"]
    formula: int
    counted: int
    reason: str

    @property
    def difference(self) -> int:
        """FLOPs that the formula has more than were counted."""
        return self.formula - self.counted


class FieldFormula(Record, frozen=True, kw_only=True):
    """The FLOPs of a step as papers estimate them, from a few sizes, beside those counted.

    Attributes:
        name: The formula, for a token: "6·N + 12·L·h·s", without attention "6·N".
        parameters: N, the elements of all parameters.
        tokens: Tokens of a step.
        layers: L; None where the model does not tell, and the formula is without attention.
        width: h, the width of attention: heads times the size of one.
        sequence: s, the tokens of one sequence.
        parts: The terms; what they differ by adds up to the whole difference.
        mfu: The utilization that papers would print.
    """

    name: str
    parameters: int
    tokens: int
    layers: int | None
    width: int | None
    sequence: int | None
    parts: tuple[FormulaPart, ...]
    mfu: float | None = None
    how: How = "estimated"

    @property
    def flops(self) -> int:
        """FLOPs of a step by the formula."""
        return sum(part.formula for part in self.parts)


class Utilization(Record, frozen=True, kw_only=True):
    """The FLOPs of a step's products over its time, as a share of a device's peak.

    Elementwise work is in neither: the peak is one of products. Attention counts whole, not only
    the triangle that a causal mask leaves, as in the literature.

    Attributes:
        model_flops: Of the forward and backward pass.
        flops_range: Of a loop whose recorded steps do other work each, the least and the most
            model FLOPs of one; MFU and HFU are those of the middle one and have no interval.
        executed_flops: With what activation checkpointing computes again.
        seconds: The time of a step, of which all rates are.
        average: Whether that is the median step or the mean, to which rare long ones count too.
        seconds_interval: Its 95 % interval.
        peak: None where no peak of the device is known in the products' dtype.
        devices: How many devices did those FLOPs.
        mfu: Model FLOPs a second over the peak of all devices.
        mfu_interval: Of the step's time alone; the peak has none.
        hfu: The same of the executed FLOPs.
        formula: The field's formula beside; None without tokens.
        tokens_per_second: None where the inputs do not say how many tokens they hold.
        samples_per_second: None where they do not say how many samples.
        at_least: Whether operators without formula ran, which have no FLOPs here.
        clock: What the time is of: bare steps, or recorded under a profiler.
        reason: Why a figure is unknown; empty where all are known.
    """

    model_flops: int
    executed_flops: int
    seconds: float
    average: Literal["median", "mean"] = "median"
    seconds_interval: Interval | None = None
    peak: PeakUsed | None = None
    devices: int = 1
    mfu: float | None = None
    mfu_interval: Interval | None = None
    hfu: float | None = None
    hfu_interval: Interval | None = None
    formula: FieldFormula | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    at_least: bool = False
    clock: Literal["bare", "recorded"] = "bare"
    flops_range: tuple[int, int] | None = None
    reason: str = ""
    how: How = "estimated"

    def share_at(self, seconds: float) -> float | None:
        """Return the MFU of a step of these seconds."""
        if self.peak is None or seconds <= 0:
            return None
        return self.model_flops / seconds / (self.devices * self.peak.flops_per_second)
