"""Assertions of a model in tests: latency, FLOPs, memory, parameters, no regression."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchgauge import units
from torchgauge.analyze.gate.limits import judge, parse_limit, percentile_of
from torchgauge.api.measurements import count_cost, measure_latency, measure_memory, measure_size
from torchgauge.api.profiles import profile
from torchgauge.errors import InputError, option_conflict, option_invalid
from torchgauge.files import is_file
from torchgauge.records.headline.figure import Figure
from torchgauge.records.metric import METRICS
from torchgauge.records.verdict import Ruling
from torchgauge.report.content import rulings
from torchgauge.visible import one_line, visible

if TYPE_CHECKING:
    from torchgauge.integrate.baselines import Baselines
    from torchgauge.records.latency.latency import Latency
    from torchgauge.records.memory.memory import Memory
    from torchgauge.records.profile import Profile
    from torchgauge.records.verdict import Verdict
    from torchgauge.records.work.cost import Cost
    from torchgauge.records.work.size import Size

Note = Callable[[list[str], str], None]
BUDGET = 5.0
# From so many processes on, times are judged against a saved run; then layers are timed too.
MIN_TIMED_PROCESSES = 6
PROFILE_HINT = "print(tg.profile(model, inputs)) tells where it goes"
NOISY = "If the machine was busy, measure again: `torchgauge doctor` says what disturbs it"


@dataclasses.dataclass(frozen=True)
class Options:
    """How a test measures; `budget` in seconds of sampling, for all processes together."""

    processes: int = 1
    budget: float = BUDGET
    device: str | None = None
    warmup: int | None = None
    iterations: int | None = None
    train: Any = None

    @staticmethod
    def from_marker(marker_options: Mapping[str, Any]) -> Options:
        """Return the options of a marker. Raises InputError `option-invalid`."""
        names = [field.name for field in dataclasses.fields(Options)]
        if unknown := [name for name in marker_options if name not in names]:
            raise option_invalid(
                f"The marker torchgauge has no option '{unknown[0]}'.",
                f"It takes {', '.join(names)}.",
            )
        return Options(**marker_options)


class Assertions:
    """The fixture `torchgauge`: each method measures, asserts, and returns what was measured.

    They raise AssertionError with figure, interval and remedy; InputError for a limit that is none
    (`threshold-invalid`); and what measuring raises.
    """

    def __init__(
        self,
        options: Options,
        note: Note,
        *,
        baselines: Baselines | None = None,
        update: bool = False,
        strict: bool = False,
    ) -> None:
        self._options = options
        self._note = note
        self._baselines = baselines
        self._update = update
        self._strict = strict

    def assert_latency(
        self,
        model: Callable[..., Any],
        inputs: Any = None,
        below: str | None = None,
        *,
        p90_below: str | None = None,
        p95_below: str | None = None,
        p99_below: str | None = None,
    ) -> Latency:
        """Assert that the median time of a call is at most `below` ("5ms"), or a percentile is."""
        __tracebackhide__ = True
        limit_texts = {"latency": below, "p90": p90_below, "p95": p95_below, "p99": p99_below}
        limits = [
            parse_limit(f"{name}:{text}") for name, text in limit_texts.items() if text is not None
        ]
        if not limits:
            raise _no_limit("assert_latency(model, inputs, below='5ms')")
        percentile = percentile_of(limits)
        latency = measure_latency(model, inputs, **vars(self._options), percentile=percentile)
        processes = _processes(len(latency.processes))
        calls = f"{len(latency.samples):,} calls in {processes}, {latency.stop}"
        rulings_made = []
        for limit in limits:
            name = "median" if limit.metric == "latency" else limit.metric
            interval = latency.percentile_intervals.get(limit.metric, latency.interval)
            value = getattr(latency, name)
            figure = Figure(
                METRICS[limit.metric].figure, "s", "measured", "", value, True, interval
            )
            rulings_made.append(judge(limit, figure))
        self._settle(rulings_made, model, calls, f"{_worker_hint()}{NOISY}; {PROFILE_HINT}")
        return latency

    def assert_flops(
        self,
        model: Callable[..., Any],
        inputs: Any = None,
        below: str | float | None = None,
        *,
        equal: str | float | None = None,
    ) -> Cost:
        """Assert how much work a call does ("4G"): at most `below`, or exactly `equal`."""
        __tracebackhide__ = True
        cost = count_cost(model, inputs, backward=bool(self._options.train))
        unknown = visible(", ".join(list(cost.unknown)[:3]))
        remedy = "print(tg.count_cost(model, inputs)) tells which layers do the work"
        if unknown:
            remedy = f"Give {unknown} a formula (tg.flop_formula): the total is a lower bound"
        flops = cost.flops if cost.flops_range is None else cost.flops_range[1]
        self._counted("flops", model, flops, cost.at_least, below, equal, remedy)
        return cost

    def assert_params(
        self,
        model: Callable[..., Any],
        below: str | float | None = None,
        *,
        equal: str | float | None = None,
    ) -> Size:
        """Assert how many elements the parameters have ("25M")."""
        __tracebackhide__ = True
        size = measure_size(model)
        at_least = bool(size.uninitialized)
        remedy = (
            "Run the model once: lazy parameters have no shape yet" if at_least else PROFILE_HINT
        )
        self._counted("params", model, size.parameters, at_least, below, equal, remedy)
        return size

    def assert_memory(
        self, model: Callable[..., Any], inputs: Any = None, below: str | None = None
    ) -> Memory:
        """Assert that the tensors of a call need at most `below` ("2GB") at their peak."""
        __tracebackhide__ = True
        if below is None:
            raise _no_limit("assert_memory(model, inputs, below='2GB')")
        limit = parse_limit(f"memory:{below}")
        memory = measure_memory(
            model, inputs, train=self._options.train, device=self._options.device
        )
        parts = sorted(memory.parts.items(), key=lambda part: -part[1])[:3]
        largest_parts = ", ".join(f"{name} {units.size(size)}" for name, size in parts if size)
        figure = Figure("memory_peak", "B", memory.how, "", memory.peak)
        self._settle([judge(limit, figure)], model, largest_parts, PROFILE_HINT)
        return memory

    def assert_no_regression(
        self, model: Callable[..., Any], inputs: Any = None, tolerance: str | Sequence[str] = ()
    ) -> Verdict | None:
        """Assert that nothing got worse than in the saved run (`--torchgauge-baseline`).

        Counted figures and memory always decide; times from six processes on, with the marker
        `torchgauge(processes=10)`. Returns None where the run was saved in place of compared.
        """
        __tracebackhide__ = True
        if self._baselines is None:
            raise AssertionError(
                "There is no saved run to compare with.\n"
                "  Remedy: run pytest with --torchgauge-baseline PATH, once with "
                "--torchgauge-update"
            )
        path = self._baselines.next()
        if not self._update and not is_file(path):
            raise AssertionError(
                f"There is no saved run of this test: {visible(str(path))} is absent.\n"
                "  Remedy: run it once with --torchgauge-update, and keep that file"
            )
        current = self._profile(model, inputs)
        if self._update:
            if not current.complete:
                raise AssertionError(_unmeasured(current, model))
            self._baselines.save(current, path)
            self._note(["all", f"saved to {path.name}", "", "", "saved"], "")
            return None
        from torchgauge.api.gates import gate_records
        from torchgauge.gates.gate_options import GateOptions

        texts = (tolerance,) if isinstance(tolerance, str) else tolerance
        verdict = gate_records(path, current, GateOptions.parsed(tolerances=texts))
        if not current.complete and any(ruling.current is None for ruling in verdict.rulings):
            raise AssertionError(_unmeasured(current, model))
        self._conclude(verdict, model)
        return verdict

    def _profile(self, model: Callable[..., Any], inputs: Any) -> Profile:
        return profile(
            model,
            inputs,
            **vars(self._options),
            detail="layers" if self._options.processes >= MIN_TIMED_PROCESSES else "summary",
            roofs=False,
            keep_going=True,
        )

    def _conclude(self, verdict: Verdict, model: object) -> None:
        __tracebackhide__ = True
        for ruling in verdict.rulings:
            too_few_processes = ruling.unit == "s" and self._options.processes < MIN_TIMED_PROCESSES
            hint = "; in a test: @pytest.mark.torchgauge(processes=10)" if too_few_processes else ""
            doubt = ruling.outcome in ("inconclusive", "not comparable")
            self._note_ruling(ruling, f"{rulings.explanation(ruling)}{hint}" if doubt else "")
        if verdict.outcome == "fail" or (self._strict and not verdict.passed):
            remedy = "If this is intended, run with --torchgauge-update and keep the new file"
            message = f"{_name(model)} got worse than its saved run, or may have"
            raise AssertionError(f"{message}\n{verdict}\n  Remedy: {remedy}")

    def _counted(
        self,
        metric: str,
        model: object,
        value: int,
        at_least: bool,
        below: str | float | None,
        equal: str | float | None,
        remedy: str,
    ) -> None:
        __tracebackhide__ = True
        if (below is None) == (equal is None):
            raise _no_limit(f"assert_{metric}(…, below='4G') or equal=…")
        limit = parse_limit(f"{metric}:{below if equal is None else equal}")
        if equal is not None and not at_least:
            is_equal = value == limit.value
            outcome = "pass" if is_equal else "fail"
            self._note([metric, f"{value:,}", "", f"= {limit.value:,.0f}", outcome], "")
            if not is_equal:
                figures = f"{value:,} counted, {limit.value:,.0f} expected"
                raise AssertionError(f"{metric} of {_name(model)}: {figures}\n  Remedy: {remedy}")
            return
        ruling = judge(limit, Figure(metric, "", "counted", "", value), at_least=at_least)
        self._settle([ruling], model, f"{value:,} counted", remedy)

    def _settle(
        self, rulings_made: Sequence[Ruling], model: object, details: str, remedy: str
    ) -> None:
        __tracebackhide__ = True
        for ruling in rulings_made:
            self._note_ruling(ruling)
        if broken := [ruling for ruling in rulings_made if ruling.outcome != "pass"]:
            lines = [f"{rulings.line(ruling)} [{_name(model)}]" for ruling in broken]
            raise AssertionError("\n".join([*lines, f"  {details}", f"  Remedy: {remedy}"]))

    def _note_ruling(self, ruling: Ruling, doubt: str = "") -> None:
        figures = (rulings.figure(ruling), rulings.interval(ruling), rulings.allowed(ruling))
        note_text = f"{ruling.metric} {ruling.outcome}: {doubt}" if doubt else ""
        self._note([ruling.metric, *figures, ruling.outcome], note_text)


def _name(model: object) -> str:
    return visible(str(getattr(model, "__name__", None) or type(model).__name__))


def _unmeasured(record: Profile, model: object) -> str:
    """Return the failures as text: a failure is not an inconclusive comparison."""
    failed = [warning for warning in record.all_warnings if warning.failed]
    warning_lines = (f"  {one_line(f'{warning.message} {warning.cause}')}" for warning in failed)
    return "\n".join([f"{_name(model)} could not be measured", *warning_lines])


def _processes(count: int) -> str:
    return "one process" if count == 1 else f"{count} processes"


def _worker_hint() -> str:
    """Return a hint where other workers of pytest-xdist ran beside this test."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return f"{workers} workers ran side by side: use -n 0. " if workers > 1 else ""


def _no_limit(example: str) -> InputError:
    return option_conflict("There is no limit to assert.", f"Write it as in {example}.")
