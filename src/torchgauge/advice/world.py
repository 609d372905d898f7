"""The world that an experiment measures in: real processes here, made-up ones in its tests."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from torchgauge.advice.budget import Budget, BudgetOver
from torchgauge.advice.candidate import ORDERS, ByLayer, Candidate
from torchgauge.analyze.statistics.paired import FourLogs
from torchgauge.errors import MeasurementError
from torchgauge.measure.advice.check import (
    CheckResult,
    CheckSource,
    LayerChoice,
    LayerChoiceSource,
    check_sent,
    choose_sent,
)
from torchgauge.measure.advice.facts import facts_sent
from torchgauge.measure.latency.blocks import ABBA, Pace, Timed, block
from torchgauge.measure.processes.child_work import S, T, Work
from torchgauge.measure.processes.fork_server import ForkServer
from torchgauge.measure.processes.processes import ask
from torchgauge.measure.processes.waiting_process import Build
from torchgauge.records.target import Facts
from torchgauge.targets.changed_target import Changed, changed_training


class Side(NamedTuple):
    """A version of the model: the candidates applied together; none are the original."""

    candidates: tuple[Candidate, ...] = ()

    def ordered(self) -> list[Candidate]:
        """Return the candidates as their lines must run."""
        return sorted(self.candidates, key=lambda candidate: ORDERS.index(candidate.order))

    def code(self, facts: Facts, on: str = "model") -> tuple[str, ...]:
        """Return the lines of Python on the model, or on the optimizer."""
        fitting = [
            candidate
            for candidate in self.ordered()
            if candidate.language == "python" and candidate.on == on
        ]
        return tuple(candidate.code(facts) for candidate in fitting)

    def variables(self, facts: Facts) -> dict[str, str]:
        """Return the variables its processes need."""
        return {
            k: v for candidate in self.candidates for k, v in candidate.variables(facts).items()
        }

    @property
    def ids(self) -> tuple[str, ...]:
        """The candidates' ids."""
        return tuple(candidate.id for candidate in self.candidates)

    @property
    def times(self) -> int:
        """How many times as many samples are in a call."""
        return math.prod(candidate.times for candidate in self.candidates)


class Block(NamedTuple):
    """One ABBA block: d = ln(B ÷ A) of a call, typical seconds, logs and seconds by layer.

    `cpu` is d of CPU time, `core_share` the share of the time in which threads could run that they
    ran, the least of the four processes'; None where the system does not tell.
    """

    difference: float
    before: float
    after: float
    layers: dict[str, FourLogs] = {}  # noqa: RUF012 - never changed
    layer_seconds: dict[str, float] = {}  # noqa: RUF012
    duration: float = 0.0
    cpu: float | None = None
    core_share: float | None = None


class World(Protocol):
    """Looks at the model, checks a changed one, and times two versions in turn.

    `look_seconds` are the seconds that looking took, `timing` those that a block times for. A check
    or block that a budget stops raises BudgetOver.
    """

    look_seconds: float

    @property
    def timing(self) -> float:
        """The seconds for which a block's processes are timed, once they have loaded."""

    def facts(self) -> Facts:
        """Return what the original is; raises where it does not run."""

    def check(self, side: Side, tolerance: float) -> CheckResult:
        """Compare a version's outputs with the original's; raises what the version raises."""

    def choose(self, by_layer: ByLayer, tolerance: float) -> LayerChoice:
        """Return the layers that a change keeps the outputs with; raises as `check`."""

    def block(self, a: Side, b: Side, *, layers: bool) -> Block:
        """Time two versions in four fresh processes; raises what either raises."""


@dataclasses.dataclass
class Processes:
    """The real world: fresh processes, one measuring at a time."""

    build: Build
    metric: Callable[[Any], float] | None = None
    latency_limit: float | None = None
    pace: Pace = dataclasses.field(default_factory=Pace)
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    budget: Budget = dataclasses.field(default_factory=Budget)
    server: ForkServer | None = None
    look_seconds: float = 0.0
    _facts: Facts | None = None

    def facts(self) -> Facts:
        """Return what the original is. Raises what running it, or the metric on it, raises.

        Raises MeasurementError `budget-short` where the budget ends before it is known.
        """
        if self._facts is None:
            try:
                self._facts = self._look()
                if self.metric is not None:  # what is wrong with it is wrong for every candidate
                    self.check(Side(), 1.0)
            except BudgetOver:
                raise _short(self.budget) from None
        return self._facts

    @property
    def timing(self) -> float:
        """The seconds for which a block's processes are timed, once they have loaded."""
        pace = self.pace
        return ABBA * pace.rounds * max(pace.seconds, pace.calls * self.facts().step)

    def _look(self) -> Facts:
        if self.server is not None and not self.server.ready():
            self.server = None
        began = time.monotonic()
        facts = self._ask(facts_sent, Facts, self.build.source, self.variables)
        self.look_seconds = time.monotonic() - began
        return msgspec.structs.replace(facts, latency_limit=self.latency_limit)

    @contextlib.contextmanager
    def _budget_errors(self) -> Iterator[None]:
        """Raise BudgetOver in place of the error of a process that the budget has stopped."""
        try:
            yield
        except MeasurementError as error:
            if error.id == "child-timeout" and self.budget.is_stopped():
                raise BudgetOver from error
            raise

    def check(self, side: Side, tolerance: float) -> CheckResult:
        """Compare outputs in a process of its own."""
        facts, build = self.facts(), self.build
        source = CheckSource(
            **_fields(build),
            code=side.code(facts),
            on_optimizer=side.code(facts, "optimizer"),
            tolerance=tolerance,
            metric=self.metric,
            times=side.times,
        )
        variables = {**self.variables, **side.variables(facts)}
        return self._ask(check_sent, CheckResult, source, variables)

    def choose(self, by_layer: ByLayer, tolerance: float) -> LayerChoice:
        """Choose layers in a process of its own."""
        source = LayerChoiceSource(
            **_fields(self.build),
            tolerance=tolerance,
            metric=self.metric,
            kinds=by_layer.kinds,
            lines=functools.partial(by_layer.code, self.facts()),
        )
        return self._ask(choose_sent, LayerChoice, source, self.variables)

    def _ask(self, work: Work[S, T], kind: type[T], source: S, variables: Mapping[str, str]) -> T:
        """Return what a process answers that the budget may stop; Ctrl-C raises."""
        build = self.build
        with self._budget_errors():
            answer, interrupted = ask(
                work, kind, source, build.options, build.home,
                variables=variables, limit=self.budget.until_stop(),
                server=self.server,
            )  # fmt: skip
        if interrupted:
            raise KeyboardInterrupt
        return answer

    def block(self, a: Side, b: Side, *, layers: bool) -> Block:
        """Time four fresh processes in turn."""
        pace = self.pace
        if not layers:
            pace = dataclasses.replace(pace, layer_rounds=0, rounds=max(2, pace.rounds // 2))
        pace = dataclasses.replace(pace, cpu=True)
        with self._budget_errors():
            sides = self._side(a, b), self._side(b)
            timed = block(*sides, pace, self.budget.until_stop(), self.server)
        return _block(timed, b.times / a.times)

    def _side(self, side: Side, other: Side | None = None) -> Build:
        """Return the build of a version; the original may run as another candidate has it."""
        facts, build = self.facts(), self.build
        code = side.code(facts)
        if other is not None:
            added = [
                candidate for candidate in other.candidates if candidate not in side.candidates
            ]
            code = (*(candidate.original for candidate in added if candidate.original), *code)
        train = changed_training(build.options.train, side.code(facts, "optimizer"))
        return build._replace(
            source=Changed(**_fields(build), code=code),
            options=dataclasses.replace(build.options, train=train),
            label="+".join(side.ids) or "original",
            variables={**self.variables, **side.variables(facts)},
        )


def _short(budget: Budget) -> MeasurementError:
    return MeasurementError(
        "The budget ended before the model had been inspected.",
        id="budget-short",
        cause=f"Loading it and running it a few times takes longer than {budget.seconds:g} s.",
        remedy="Give a larger --budget; trying a candidate takes several times as long.",
    )


def _fields(build: Build) -> dict[str, Any]:
    source = build.source
    return {field.name: getattr(source, field.name) for field in dataclasses.fields(source)}


def _block(timed: Timed, times: float) -> Block:
    visits = timed.figures["latency"]
    before = statistics.geometric_mean([*visits[0], *visits[3]])
    after = statistics.geometric_mean([*visits[1], *visits[2]])
    first, last = timed.layers[0], timed.layers[3]
    own = {path: (first[path] + last[path]) / 2 for path in first if path in last}
    differences, shares = timed.differences(), timed.figures.get("core_share")
    cpu = differences.get("cpu_time")
    return Block(
        difference=differences["latency"] - math.log(times),
        before=before,
        after=after / times,
        cpu=None if cpu is None else cpu - math.log(times),
        core_share=None if shares is None else min(map(statistics.fmean, shares)),
        layers=timed.layer_logs(),
        layer_seconds=own,
        duration=timed.duration,
    )
