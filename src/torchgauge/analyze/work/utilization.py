"""Model and hardware FLOPs utilization of a step, and the field's formula beside the count.

Source: PaLM (arXiv 2204.02311, appendix B) for MFU and 6·N + 12·L·h·s; Korthikanti et al. (arXiv
2205.05198) for the FLOPs of recomputation, which HFU has and MFU has not.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from torchgauge import units
from torchgauge.analyze.work.lower_bound import TORCH_DEFAULT, Fp32
from torchgauge.records.record import Interval
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import Roofs
from torchgauge.records.work.utilization import FieldFormula, FormulaPart, PeakUsed, Utilization

# FLOPs for each weight and token: a multiply-add forward, and two of them backward.
FORWARD = 2
TRAINING = 6
# Products of two activations; all others have a weight.
_ATTENTION = ("bmm", "baddbmm", "attention")
# Below this share of the counted FLOPs a difference needs no words.
NEGLIGIBLE = 1e-4


class Products(NamedTuple):
    """FLOPs of the products of one step.

    `attention` are those of two activations, in the model's own; `by_dtype` is of the model's own.
    `backward`: whether a backward pass is among them.
    """

    model: int
    executed: int
    by_dtype: dict[str, int]
    attention: int = 0
    backward: bool = True
    at_least: bool = False


class ModelShape(NamedTuple):
    """The sizes of a transformer that the field's formula is of; None where they are not known.

    `parameters` are elements, `width` is heads times the size of one.
    """

    parameters: int
    layers: int | None = None
    width: int | None = None


class StepContents(NamedTuple):
    """What one step processes on these devices; None where the inputs do not say."""

    samples: int | None = None
    tokens: int | None = None


UNKNOWN_CONTENTS = StepContents()


class StepTime(NamedTuple):
    """Seconds of a step, with its interval, which step, and whether a profiler was attached."""

    seconds: float
    interval: Interval | None = None
    clock: Literal["bare", "recorded"] = "bare"
    average: Literal["median", "mean"] = "median"


def products_of(cost: Cost) -> Products:
    """Return the products of a counted call."""
    model = executed = attention = 0
    by_dtype: dict[str, int] = {}
    for row in cost.rows:
        executed += row.matmul_flops
        if row.phase == "recompute":
            continue
        model += row.matmul_flops
        attention += row.matmul_flops if multiplies_activations(row.operator) else 0
        by_dtype[row.dtype] = by_dtype.get(row.dtype, 0) + row.matmul_flops
    return Products(model, executed, by_dtype, attention, cost.backward, cost.at_least)


def multiplies_activations(operator: str) -> bool:
    """Return whether an operator's products have no weight: those of attention."""
    return any(name in operator for name in _ATTENTION)


def peak_used(
    products: Products, datasheet: Roofs | None, measured: Roofs | None, fp32: Fp32 = TORCH_DEFAULT
) -> PeakUsed | None:
    """Return the peak in the dtype of most products: the vendor's, else what was measured."""
    if not products.model:
        return None
    dtype = max(products.by_dtype, key=lambda name: products.by_dtype[name])
    rounded = dtype == "float32" and fp32[0] == "tf32"
    for roofs in (datasheet, measured):
        speed = None if roofs is None else roofs.peak(dtype, tf32=rounded)
        if roofs is None or not speed:
            continue
        name = "tf32" if rounded and "tf32" in roofs.peaks else dtype
        return PeakUsed(
            device=roofs.device,
            dtype=name,
            flops_per_second=speed,
            source=roofs.source,
            document=roofs.sources.get(name, "") or roofs.method,
            share=products.by_dtype[dtype] / products.model,
        )
    return None


def utilization(
    products: Products,
    time: StepTime,
    peak: PeakUsed | None,
    *,
    devices: int = 1,
    contents: StepContents = UNKNOWN_CONTENTS,
    shape: ModelShape | None = None,
) -> Utilization | None:
    """Return the utilization of a step; None where no product was counted or it took no time."""
    if not products.model or time.seconds <= 0:
        return None
    result = Utilization(
        model_flops=products.model,
        executed_flops=products.executed,
        seconds=time.seconds,
        average=time.average,
        seconds_interval=time.interval,
        peak=peak,
        devices=devices,
        tokens_per_second=_per_second(contents.tokens, time.seconds),
        samples_per_second=_per_second(contents.samples, time.seconds),
        at_least=products.at_least,
        clock=time.clock,
        reason="" if peak is not None else _without_peak(products, time),
    )
    model = result.share_at(time.seconds)
    if model is not None:
        interval = _over(result, time.interval)
        repeated = products.executed / products.model
        result = msgspec.structs.replace(
            result,
            mfu=model,
            mfu_interval=interval,
            hfu=model * repeated,
            hfu_interval=_scaled(interval, repeated),
        )
    if shape is None or not contents.tokens:
        return result
    formula = field_formula(products, shape, contents)
    by_formula = None if model is None else model * formula.flops / products.model
    return msgspec.structs.replace(result, formula=msgspec.structs.replace(formula, mfu=by_formula))


def field_formula(products: Products, shape: ModelShape, contents: StepContents) -> FieldFormula:
    """Return 6·N + 12·L·h·s for each token (2·N + 4·L·h·s forward), term by term beside the count.

    Without layers, width or samples it has no attention.
    """
    times, tokens = TRAINING if products.backward else FORWARD, contents.tokens or 0
    sequence = None if not contents.samples else tokens // contents.samples
    attention = None
    if shape.layers and shape.width and sequence:
        attention = 2 * times * shape.layers * shape.width * sequence * tokens
    name = f"{times}·N" + ("" if attention is None else f" + {2 * times}·L·h·s")
    weights = FormulaPart(
        name="weights",
        formula=times * shape.parameters * tokens,
        counted=products.model - products.attention,
        reason="",
    )
    attended = FormulaPart(
        name="attention", formula=attention or 0, counted=products.attention, reason=""
    )
    return FieldFormula(
        name=name,
        parameters=shape.parameters,
        tokens=tokens,
        layers=shape.layers,
        width=shape.width,
        sequence=sequence,
        parts=(
            msgspec.structs.replace(
                weights, reason=_weights_reason(weights, shape, times * tokens)
            ),
            msgspec.structs.replace(
                attended, reason=_attention_reason(attended, has_attention=attention is not None)
            ),
        ),
    )


def _weights_reason(part: FormulaPart, shape: ModelShape, per_weight: int) -> str:
    if abs(part.difference) <= NEGLIGIBLE * part.counted:
        return ""
    multiplied = units.elements(part.counted / per_weight)
    text = f"a token is multiplied by {multiplied} of the {units.elements(shape.parameters)}"
    if part.difference > 0:
        return (
            f"{text} parameters (embeddings are looked up, norms and biases are not multiplied, "
            "and of experts a token passes through some)"
        )
    return f"{text} parameters (some weights are used more than once, or by more than these tokens)"


def _attention_reason(part: FormulaPart, *, has_attention: bool) -> str:
    if abs(part.difference) <= NEGLIGIBLE * max(part.counted, part.formula):
        return ""
    if not has_attention:
        return "the layers and width of the model are not known: the formula is without attention"
    if part.difference > 0:
        return "attention over fewer pairs of tokens than L·s², such as within a window"
    return "products of activations beside attention, or attention over more tokens"


def _over(result: Utilization, seconds: Interval | None) -> Interval | None:
    """Return the interval of the MFU that the interval of the step's time makes."""
    if seconds is None or seconds.low <= 0:
        return None
    low, high = result.share_at(seconds.high), result.share_at(seconds.low)
    if low is None or high is None:
        return None
    return msgspec.structs.replace(seconds, low=low, high=high)


def _scaled(interval: Interval | None, factor: float) -> Interval | None:
    if interval is None:
        return None
    return msgspec.structs.replace(interval, low=interval.low * factor, high=interval.high * factor)


def _per_second(count: int | None, seconds: float) -> float | None:
    return None if count is None else count / seconds


def _without_peak(products: Products, time: StepTime) -> str:
    dtype = max(products.by_dtype, key=lambda name: products.by_dtype[name])
    if time.clock == "recorded":
        return f"no datasheet of the recorded device is known for {dtype}"
    return (
        f"no peak of this device is known for {dtype}: measure it once with "
        "`torchgauge profile TARGET --roofs`"
    )
