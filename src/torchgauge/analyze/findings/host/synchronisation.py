"""Calls in which the host waits for the device, so that the device waits for the host after them.

A wait that costs the device nothing, as at the end of a recording or where the host is far ahead,
is no finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchgauge import units
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.rule import NOTICEABLE, Rule, share
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import base_name
from torchgauge.records.trace.trace import Synchronisation

_VALUES = (
    "Leave values on the device: no .item(), float(), print or if on them in the step; log every "
    "some hundred steps."
)
_SIZES = (
    "Sizes that depend on values have to be waited for: torch.where, multiplication with the "
    "mask, or torch.nonzero_static in place of nonzero and boolean indices."
)
_COPIES = (
    "Copy with non_blocking=True, from and to pinned memory; leave out of the step what it does "
    "not read."
)
_REMEDIES = {
    **dict.fromkeys(("aten::item", "aten::is_nonzero", "aten::_local_scalar_dense"), _VALUES),
    **dict.fromkeys(("aten::nonzero", "aten::masked_select", "aten::index"), _SIZES),
    **dict.fromkeys(("aten::_unique2", "aten::unique_consecutive", "aten::unique_dim"), _SIZES),
    **dict.fromkeys(("aten::to", "aten::_to_copy", "aten::copy_"), _COPIES),
}


def _find(evidence: Evidence) -> Iterator[Finding]:
    waits = () if evidence.rank is None else evidence.rank.synchronisations
    idle = sum(wait.idle for wait in waits)
    if share(idle, evidence.time) < NOTICEABLE:
        return
    costliest = max(waits, key=lambda wait: wait.idle)
    yield RULE.costs(
        idle,
        evidence.time,
        title="The host waits for the device, which then waits for the host: "
        f"{units.percent(idle / evidence.time)} of the window",
        evidence=f"{costliest.count:,} × {_call(costliest)}: the host waits "
        f"{units.time(costliest.time)}, and the device afterwards {units.time(costliest.idle)} for "
        f"launches.{_all_waits(waits, idle)}",
        remedy=_remedy(costliest) + _stack_hint(evidence, costliest),
        path=costliest.layer,
        view="tables",
    )


def _all_waits(waits: tuple[Synchronisation, ...], idle: float) -> str:
    """Return what all of them cost the device, where there are several kinds."""
    costly = sum(wait.idle > 0 for wait in waits)
    return f" After all waits: {units.time(idle)}." if costly > 1 else ""


def _stack_hint(evidence: Evidence, wait: Synchronisation) -> str:
    """Return how to see who called it, where the file has stacks that were not read."""
    has_stacks = evidence.rank is not None and evidence.rank.contents.python > 0
    return (
        " With --python the calling function is named." if has_stacks and not wait.function else ""
    )


def _call(wait: Synchronisation) -> str:
    """Return the call with what is around it: "aten::item in head, train.py(12): step"."""
    location = f" in {wait.layer}" if wait.layer else ""
    function = f", {wait.function}" if wait.function else ""
    around = f"{wait.operator} ({wait.call})" if wait.operator else wait.call
    return f"{around}{location}{function}"


def _remedy(wait: Synchronisation) -> str:
    if not wait.operator:
        return "Do not synchronise in the step: torch.cuda.synchronize() is for measuring."
    other = "Leave values on the device; torch.cuda.set_sync_debug_mode(1) warns of each wait."
    return _REMEDIES.get(base_name(wait.operator), other)


RULE = Rule(
    "synchronisation",
    _find,
    source="https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html"
    "#avoid-unnecessary-cpu-gpu-synchronization",
    explains=("idle-host",),
)
