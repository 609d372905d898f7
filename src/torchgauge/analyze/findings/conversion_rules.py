"""Copies that change a type or a layout, and fills."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, Execution, operators_above
from torchgauge.analyze.findings.rule import noticeable, rule
from torchgauge.analyze.work.categories import category
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import base_name

_FLOATS = {"float64", "float32", "bfloat16", "float16"}


@rule(
    "casts",
    source="https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    jax_remedy="Keep weights and activations in one type; one jax.jit around them fuses the rest.",
)
def type_casts(evidence: Evidence) -> Iterator[Finding]:
    """Find conversions between types, as autocast and layers with a type of their own make."""
    casts = [execution for execution in evidence.executed("copy") if _is_cast(execution)]
    if not _mixes_types(evidence) or not (
        time := noticeable(evidence, (execution.time for execution in casts))
    ):
        return
    layer, longest = evidence.longest_layer(casts)
    calls = sum(execution.node.calls for execution in casts)
    yield type_casts.costs(
        (time, evidence.time),
        title=f"Conversions between types take {evidence.part(time)}",
        evidence=f"{units.time(time)} in {calls:,} copies"
        + (f", {units.time(longest)} of it in {layer}." if layer else "."),
        remedy="Keep weights and activations in one type (model.to(torch.bfloat16) for inference, "
        "one autocast around the whole forward pass), or fuse the casts: torch.compile.",
        path=layer,
        search="aten::_to_copy",
    )


def _is_cast(execution: Execution) -> bool:
    """Whether it copies to another type, not to another device or layout alone."""
    if "nocast" in execution.node.name:
        return False
    kernel = execution.node.row.kernel
    if kernel is not None and kernel.work != "kernel":
        return False
    above = (base_name(operator.name) for operator in operators_above(execution.node))
    return "aten::_to_copy" in above


def _mixes_types(evidence: Evidence) -> bool:
    """Whether operators compute in two types, as far as is known: a copy may change a layout."""
    cost = None if evidence.profile is None else evidence.profile.cost
    return cost is None or len(_FLOATS & {row.dtype for row in cost.rows}) > 1


_CAUSES = frozenset({"aten::contiguous", "aten::reshape", "aten::flatten"})
# These arrange what they need themselves, or copy for another reason.
_OTHER_CAUSES = frozenset({
    "aten::matmul", "aten::einsum", "aten::_to_copy", "aten::scaled_dot_product_attention",
    "aten::_scaled_dot_product_attention_math",
})  # fmt: skip


@rule(
    "contiguous-copies",
    source="https://docs.pytorch.org/docs/stable/tensor_view.html",
    jax_remedy="Choose an order of dimensions that needs no transpose.",
)
def contiguous_copies(evidence: Evidence) -> Iterator[Finding]:
    """Find copies made only because a view was not contiguous."""
    copies = [execution for execution in evidence.executed("copy") if _is_rearranged(execution)]
    if not (time := noticeable(evidence, (execution.time for execution in copies))):
        return
    longest = max(copies, key=lambda execution: execution.time)
    calls = sum(execution.node.calls for execution in copies)
    shapes = operators_above(longest.node)[-1].row.shapes
    yield contiguous_copies.costs(
        (time, evidence.time),
        title=f"Copies that only make a view contiguous take {evidence.part(time)}",
        evidence=f"{units.time(time)} in {calls:,} copies by "
        f"{', '.join(sorted({_cause(execution) for execution in copies}))}"
        + (f"; the longest on {shapes[:60]}." if shapes else "."),
        remedy="Leave out .contiguous() where the next operator takes strides (attention and "
        "products do), choose an order of dimensions that needs no transpose before "
        ".reshape(), or torch.compile.",
        path=evidence.longest_layer(copies)[0],
        search="aten::contiguous",
    )


def _is_rearranged(execution: Execution) -> bool:
    """Whether an operator that copies only what is not contiguous makes it for the user."""
    names = {base_name(operator.name) for operator in operators_above(execution.node)}
    return bool(names & _CAUSES) and not names & _OTHER_CAUSES


def _cause(execution: Execution) -> str:
    names = [base_name(operator.name) for operator in operators_above(execution.node)]
    return next(name for name in names if name in _CAUSES)


_CONVERSION = re.compile(r"nchwToNhwc|nhwcToNchw|batched_transpose_|transpose_(?:NCHW|CNHW)|NCHW2")


@rule(
    "layout-conversions",
    source="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
    jax_remedy="Lay images out as NHWC (dimension_numbers of the convolution).",
)
def layout_conversions(evidence: Evidence) -> Iterator[Finding]:
    """Find conversions of images between channels first and channels last around convolutions."""
    conversions = [calls for calls in evidence.kernels if _CONVERSION.search(calls.name)]
    if not (time := noticeable(evidence, (calls.time for calls in conversions))):
        return
    operators = {above[0].name for calls in conversions if (above := operators_above(calls.node))}
    yield layout_conversions.costs(
        (time, evidence.time),
        title=f"Converting layouts for convolutions takes {units.percent(time / evidence.time)} "
        "of the time",
        evidence=f"{units.time(time)} in {sum(calls.kernel.calls for calls in conversions):,} "
        "transposes between NCHW and NHWC"
        + (f", in {', '.join(sorted(operators)[:3])}." if operators else "."),
        remedy="Give model and images the layout that the kernels want: "
        "model.to(memory_format=torch.channels_last), and the same for the input.",
        search="nchwToNhwc" if any("nchw" in calls.name for calls in conversions) else "transpose",
        view="tables",
    )


@rule("fills", source="https://docs.pytorch.org/docs/stable/generated/torch.empty.html")
def filled_memory(evidence: Evidence) -> Iterator[Finding]:
    """Find memory that is filled with zeros or another value."""
    fills = [
        execution
        for execution in evidence.executed("fill")
        if execution.node.row.phase != "zero_grad" and _is_called(execution)
    ]
    if not (time := noticeable(evidence, (execution.time for execution in fills))):
        return
    times: dict[str, float] = {}
    for execution in fills:
        name = _outermost(execution) or "kernels without an operator"
        times[name] = times.get(name, 0.0) + execution.time
    largest_cause = max(times, key=lambda name: times[name])
    yield filled_memory.costs(
        (time, evidence.time),
        title=f"Filling memory takes {evidence.part(time)}",
        evidence=f"{units.time(time)}, {units.time(times[largest_cause])} of it by "
        f"{largest_cause}.",
        remedy="torch.empty where all of it is written anyway; make constants once, outside of "
        "the step.",
        search=largest_cause if largest_cause.startswith("aten::") else "",
    )


def _is_called(execution: Execution) -> bool:
    """Whether the program fills: other operators fill what they need, as a product its result.

    Without any operator a memory set may be a library's.
    """
    operator = _outermost(execution)
    kernel = execution.node.row.kernel
    is_set = kernel is not None and kernel.work == "memory set"
    return category(operator) == "fill" if operator else not is_set


def _outermost(execution: Execution) -> str:
    """Return the operator of torch that was called; "" where none is known."""
    around = [execution.node, *operators_above(execution.node)]
    names = [base_name(node.name) for node in around if node.name.startswith("aten::")]
    return names[-1] if names else ""
