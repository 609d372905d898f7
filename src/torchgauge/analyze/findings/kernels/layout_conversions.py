"""Conversions of images between channels first and channels last around convolutions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence, operators_above
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding

_CONVERSION = re.compile(r"nchwToNhwc|nhwcToNchw|batched_transpose_|transpose_(?:NCHW|CNHW)|NCHW2")


def _find(evidence: Evidence) -> Iterator[Finding]:
    conversions = [calls for calls in evidence.kernels if _CONVERSION.search(calls.name)]
    time = evidence.within(sum(calls.time for calls in conversions))
    if share(time, evidence.time) < NOTICEABLE:
        return
    operators = {above[0].name for calls in conversions if (above := operators_above(calls.node))}
    yield RULE.costs(
        time,
        evidence.time,
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


RULE = Rule(
    "layout-conversions",
    _find,
    source="https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
    jax_remedy="Lay images out as NHWC (dimension_numbers of the convolution).",
)
