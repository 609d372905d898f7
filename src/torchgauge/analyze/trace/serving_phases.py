"""Prefill and decode of inference servers, by the names that they give their steps.

vLLM: `execute_context_1(512)_generation_8(8)`, requests and in brackets tokens of either phase, in
older versions `execute_new_1_cached_8` with requests alone. SGLang: `step[EXTEND bs=2 toks=4096]`,
`step[DECODE bs=16]`. ATOM: `prefill[bs=2 tok=16384]`, `decode[bs=16]`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from torchgauge.analyze.timeline.launches import Launched
from torchgauge.analyze.trace.kernel_facts import enclosing_spans
from torchgauge.records.trace.events import ABSENT, Events
from torchgauge.records.trace.serving_phase import ServingPhase

_VLLM = re.compile(r"execute_context_(\d+)\((\d+)[^()]*\)_generation_(\d+)\((\d+)[^()]*\)")
_VLLM_BEFORE = re.compile(r"execute_new_(\d+)_cached_(\d+)")
_SGLANG = re.compile(r"step\[(\w+) bs=(\d+)(?: toks=(\d+))?[^\]]*\]")
_ATOM = re.compile(r"(prefill|decode)\[bs=(\d+)(?: toks?=(\d+))?[^\]]*\]")
_SGLANG_PHASES = {"EXTEND": "prefill", "DECODE": "decode", "MIXED": "mixed"}
_FIRST = ("prefill", "mixed", "decode")


class _Batch(NamedTuple):
    """What the name of a step says: its phase, its requests and the tokens that it computes."""

    phase: str
    requests: int
    tokens: int | None


def serving_phases(events: Events, work: Launched) -> tuple[ServingPhase, ...]:
    """Return the phases of the server's steps that were recorded; none of other programs."""
    is_range = events.category.where(lambda category: category == "user_annotation")
    batches = {
        code: batch
        for code, name in enumerate(events.name.values)
        if (batch := _batch(str(name))) is not None
    }
    rows = np.flatnonzero(is_range & np.isin(events.name.codes, list(batches)))
    if not len(rows):
        return ()
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    step = enclosing_spans(events, rows, work)
    inside = step != ABSENT
    durations = events.duration[work.row]
    device = np.bincount(step[inside], durations[inside], minlength=len(rows)) * 1e-9
    host = events.duration[rows] * 1e-9
    distance = np.append(np.diff(events.start[rows]) * 1e-9, np.nan)
    steps = [batches[code] for code in events.name.codes[rows].tolist()]
    phase_of_step = np.array([batch.phase for batch in steps])
    return tuple(
        _phase(phase, steps, phase_of_step == phase, host, device, distance)
        for phase in sorted(set(phase_of_step.tolist()), key=_order)
    )


def _order(phase: str) -> tuple[int, str]:
    return _FIRST.index(phase) if phase in _FIRST else len(_FIRST), phase


def _phase(
    phase: str,
    steps: list[_Batch],
    chosen: np.ndarray,
    host: np.ndarray,
    device: np.ndarray,
    distance: np.ndarray,
) -> ServingPhase:
    batches = [steps[index] for index in np.flatnonzero(chosen)]
    tokens = [batch.tokens for batch in batches]
    host, device, distance = host[chosen], device[chosen], distance[chosen]
    followed = distance[~np.isnan(distance)]
    return ServingPhase(
        phase=phase,
        steps=len(batches),
        requests=sum(batch.requests for batch in batches),
        tokens=None if None in tokens else sum(count or 0 for count in tokens),
        host=float(host.sum()),
        device=float(device.sum()),
        step_host=float(np.median(host)),
        step_device=float(np.median(device)),
        distance=float(np.median(followed)) if len(followed) else None,
    )


def _batch(name: str) -> _Batch | None:
    """Return what the name of a step says; None of another name."""
    if match := _VLLM.match(name):
        new, new_tokens, running, running_tokens = map(int, match.groups())
        return _Batch(_vllm_phase(new, running), new + running, new_tokens + running_tokens)
    if match := _VLLM_BEFORE.match(name):
        new, running = map(int, match.groups())
        return _Batch(_vllm_phase(new, running), new + running, None)
    if match := _SGLANG.match(name):
        mode, requests, tokens = match.groups()
        phase = _SGLANG_PHASES.get(mode, mode.lower().replace("_", " "))
    elif match := _ATOM.match(name):
        phase, requests, tokens = match.groups()
    else:
        return None
    # A request in decode has one token a step.
    count = int(tokens) if tokens else int(requests) if phase == "decode" else None
    return _Batch(phase, int(requests), count)


def _vllm_phase(new: int, running: int) -> str:
    if new and running:
        return "mixed"
    return "prefill" if new else "decode"
