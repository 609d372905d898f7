"""What torch.compile cost a loop, by the reason and the line: recompilations and graph breaks."""

from __future__ import annotations

import dataclasses
from typing import Any

from torchgauge.measure.timeline.compilation import break_sentence
from torchgauge.measure.work import internals
from torchgauge.records.timeline.compilation import CompilationCost

_RESUMED = "torch_dynamo_resume_in_"


@dataclasses.dataclass
class _Cost:
    count: int = 0
    time: float = 0.0


class CompilationCosts:
    """Adds up Dynamo's own metrics of the steps that count.

    Read after every step, since Dynamo forgets all but the last 64 compilations.
    """

    def __init__(self) -> None:
        self._costs: dict[tuple[str, str, str], _Cost] = {}
        self._counts = True
        metrics = _metrics()
        self._last = max((entry.start_time or 0.0 for entry in metrics), default=0.0)

    def begin(self, *, counts: bool) -> None:
        """Take note that a step begins: one in which wrappers changed does not count."""
        self._counts = counts

    def end(self) -> None:
        """Take note of what was compiled since the last step."""
        new = [entry for entry in _metrics() if (entry.start_time or 0.0) > self._last]
        if not new:
            return
        self._last = max(entry.start_time for entry in new)
        if self._counts:
            for entry in new:
                self._add(entry)

    def costs(self) -> tuple[CompilationCost, ...]:
        """Return the costs, the largest first."""
        costs = [
            CompilationCost(
                cause=cause,  # type: ignore[arg-type]
                reason=reason,
                place=place,
                count=cost.count,
                time=cost.time,
            )
            for (cause, reason, place), cost in self._costs.items()
        ]
        return tuple(sorted(costs, key=lambda cost: -cost.time))

    def _add(self, entry: Any) -> None:
        time = entry.entire_frame_compile_time_s or 0.0
        place = f"{entry.co_filename}:{entry.co_firstlineno}"
        # What was traced until a break is traced again up to it; that is the break's.
        before = entry.dynamo_time_before_restart_s or 0.0
        breaks = list(entry.restart_reasons or ())
        if len(breaks) == 1 and 0 < before <= time:
            break_place = _break_place(breaks[0])
            if break_place:
                time -= before
                self._cost("graph break", break_sentence(breaks[0]), break_place).time += before
        if entry.recompile_reason:
            reason = " ".join(entry.recompile_reason.partition(": ")[2].split())
            cost = self._cost("recompilation", reason, place)
        elif (entry.co_name or "").startswith(_RESUMED):
            cost = self._cost("graph break", _break_reason(entry), place)
        else:
            cost = self._cost("first", "", place)
        cost.count += 1
        cost.time += time

    def _cost(self, cause: str, reason: str, place: str) -> _Cost:
        return self._costs.setdefault((cause, reason, place), _Cost())


def _metrics() -> list[Any]:
    dynamo = internals.dynamo()
    return [] if dynamo is None else list(dynamo.get_compilation_metrics())


def _breaks() -> list[Any]:
    """Return Dynamo's graph breaks with their user's stacks, the last first."""
    dynamo = internals.dynamo()
    breaks = [] if dynamo is None else getattr(dynamo, "graph_break_reasons", [])
    return [entry for entry in reversed(breaks) if entry.user_stack]


def _break_place(reason: str) -> str:
    for entry in _breaks():
        if entry.reason == reason:
            return f"{entry.user_stack[-1].filename}:{entry.user_stack[-1].lineno}"
    return ""


def _break_reason(resumed: Any) -> str:
    """Return why the graph broke before a function that resumes at the line of the break."""
    for entry in _breaks():
        frame = entry.user_stack[-1]
        if (frame.filename, frame.lineno) == (resumed.co_filename, resumed.co_firstlineno):
            return break_sentence(entry.reason)
    return ""
