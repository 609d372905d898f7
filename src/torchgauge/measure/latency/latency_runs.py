"""The runs of one latency: in this process first, then in fresh ones for as long as there is time.

Processes differ by more than the samples of one tell, so that a second process is worth more than
a longer look at the first. They are spread over the time that a profile takes anyway.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator

import msgspec

from torchgauge import units
from torchgauge.analyze.latency.latency import combine
from torchgauge.analyze.latency.noise import with_speed, yardsticks_of
from torchgauge.analyze.latency.run_spread import MIN_PROCESSES, past_target, run_spread
from torchgauge.device.calibration import past_runs, remember
from torchgauge.device.counters import memory_available
from torchgauge.device.environment import environment
from torchgauge.errors import InputError, TorchgaugeError
from torchgauge.measure.description import describe
from torchgauge.measure.latency import latency as probe
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.child_work import measure_latency
from torchgauge.measure.processes.fork_server import ForkServer, forking
from torchgauge.measure.processes.processes import (
    answer_of,
    in_fresh_process,
    repeated,
    time_limit,
    write_request,
)
from torchgauge.progress import Progress
from torchgauge.records.latency.latency import Latency, LatencyRun, PastRun
from torchgauge.records.record import MeasurementWarning
from torchgauge.targets.builds.source import Source
from torchgauge.targets.holdings import ParameterCounts, holdings, unique
from torchgauge.targets.hygiene import module_of
from torchgauge.targets.placement import Placement

# One run may take this share of the budget: a few slow calls in each, rather than many in one.
LONGEST_SHARE = 1 / 3
OVERDRAWN = 3.0
# A model that travels by value is written to a file once and read by each process.
MOST_CARRIED = 2**30
SHARE_OF_MEMORY = 0.25


class LatencyRuns:
    """Measures one latency bit by bit: `begin` in this process, then `measure_more`.

    Where a number of processes is asked for, `begin` measures them all. `runs` and `failures` are
    what there is so far.
    """

    def __init__(
        self,
        source: Source,
        options: LatencyOptions,
        progress: Progress,
        server: ForkServer | None = None,
    ) -> None:
        self.runs: list[LatencyRun] = []
        self.failures: list[MeasurementWarning] = []
        self._source, self._options, self._progress = source, options, progress
        self._budget = options.total_budget
        self._waited = 0.0  # for what processes are forked from
        self._spent = 0.0
        self._longest = 0.0
        self._server = server
        self._can_measure_more = False

    def begin(self, placement: Placement) -> None:
        """Measure in this process, or in each of the requested processes.

        Raises what the measurement raises.
        """
        start = time.monotonic()
        options = self._options
        if options.processes is not None and options.processes > 1:
            self.runs, self.failures = repeated(self._source, options, self._progress)
            return
        if options.several:
            self._can_measure_more = self._prepare(placement)
        single = dataclasses.replace(options, processes=1)
        if options.several:
            single = (
                self._short()
                if self._can_measure_more
                else dataclasses.replace(single, budget=self._budget)
            )
        began = time.monotonic()
        self.runs = [probe.measure(placement, single, progress=self._progress)]
        self._longest = self._spent = time.monotonic() - began
        self._waited = began - start
        self._can_measure_more = self._can_measure_more and self.runs[0].stop != "interrupted"

    @property
    def unfinished(self) -> bool:
        """True where `measure_more` may measure more."""
        return self._can_measure_more

    @property
    def median(self) -> float:
        """The middle one of the processes' medians so far, in seconds."""
        medians = sorted(run.median for run in self.runs)
        return medians[len(medians) // 2]

    def measure_more(self, share: float = 1.0) -> None:
        """Measure in further fresh processes until `share` of the budget is spent.

        With the whole of it three processes are measured at least, if that does not take thrice the
        budget: fewer have no interval.
        """
        while self._can_measure_more and len(self.runs) < self._options.effort.most_processes:
            if self._spent + self._longest > self._allowed(share):
                return
            start = time.monotonic()
            self._report_progress()
            try:
                run = self._fresh_run()
            except KeyboardInterrupt:
                run = msgspec.structs.replace(self.runs.pop(), stop="interrupted")
            except (TorchgaugeError, OSError) as raised:
                error = raised if isinstance(raised, TorchgaugeError) else _not_started(raised)
                prefix = f"Process {len(self.runs) + 1}: "
                self.failures.append(MeasurementWarning.from_error(error, "latency", prefix))
                self._can_measure_more = False
                return
            self.runs.append(run)
            self._can_measure_more = run.stop != "interrupted"
            took = time.monotonic() - start
            self._spent += took
            self._longest = took if len(self.runs) == 2 else max(self._longest, took)

    def _allowed(self, share: float) -> float:
        """Return the seconds that all runs may take together."""
        if share == 1.0 and len(self.runs) < MIN_PROCESSES:
            return OVERDRAWN * self._budget
        return share * self._budget - self._waited

    def _prepare(self, placement: Placement) -> bool:
        """Tell whether further processes can be measured; if not, a warning says why."""
        reason = _too_large(self._source, placement)
        if reason is None:
            reason = self._unready()
        if reason is not None:
            self.failures.append(_one_process_warning(reason))
        return reason is None

    def _unready(self) -> str | None:
        if self._server is None:
            return None
        try:
            request = (self._source, self._short(), measure_latency)
            write_request(self._server.folder / "measure", request)
        except (InputError, OSError) as error:
            return getattr(error, "cause", "") or str(error)
        self._progress.update("importing torch for fresh processes")
        if not self._server.ready():
            self._server = None
        return None

    def _short(self) -> LatencyOptions:
        return dataclasses.replace(
            self._options,
            processes=1,
            budget=LONGEST_SHARE * self._budget,
            independent=-(-self._options.independent // MIN_PROCESSES),
            short=True,
        )

    def _fresh_run(self) -> LatencyRun:
        if self._server is None:
            return in_fresh_process(self._source, self._short())
        folder = self._server.folder / str(len(self.runs))
        folder.mkdir()
        os.link(self._server.folder / "measure", folder / "request")  # each process removes its own
        end = self._server.run(folder, time_limit(self._short()))
        run, interrupted = answer_of(LatencyRun, end, folder, time_limit(self._short()))
        return msgspec.structs.replace(run, stop="interrupted" if interrupted else run.stop)

    def _report_progress(self) -> None:
        text = units.time(self.median)
        number = len(self.runs)
        processes = "this process" if number == 1 else f"{number} processes"
        self._progress.update(f"median {text} in {processes}", self._spent / self._budget)


@contextlib.contextmanager
def latency_runs(
    source: Source, options: LatencyOptions, progress: Progress, server: ForkServer | None = None
) -> Iterator[LatencyRuns]:
    """Yield the runs of one latency, none of them begun; no process is left after the block.

    What processes are forked from is started now, where it is not given and there is use for it:
    it imports torch meanwhile.
    """
    with contextlib.ExitStack() as stack:
        if server is None and options.several:
            server = stack.enter_context(forking())
        yield LatencyRuns(source, options, progress, server)


def _too_large(source: Source, placement: Placement) -> str | None:
    """Return why a second copy of the model is too much, or None."""
    weight_bytes = sum(tensor.bytes for tensor in unique(holdings(placement.model)))
    if not source.is_request and weight_bytes > MOST_CARRIED:
        return f"its {units.size(weight_bytes)} would have to be written to a file for them"
    free = memory_available()
    if free is not None and weight_bytes > SHARE_OF_MEMORY * free:
        return f"a second copy of its {units.size(weight_bytes)} does not fit beside it"
    return None


def _not_started(error: OSError) -> InputError:
    return InputError(
        "A measuring process could not be started.",
        id="output-unwritable",
        cause=str(error),
        remedy="Free space, or set TMPDIR to a folder that has some.",
    )


def _one_process_warning(reason: str) -> MeasurementWarning:
    return MeasurementWarning(
        id="one-process",
        message=f"Only this process was timed: {reason.rstrip('.')}.",
        probe="latency",
        remedy="Time a module or function that can be pickled, or name it as file.py:factory.",
    )


def combined(runs: LatencyRuns, placement: Placement, options: LatencyOptions) -> Latency:
    """Return the latency of the runs, its interval widened by what runs on this host differ by.

    A run of fewer than three processes, or one that was interrupted, is not remembered.
    """
    host_environment = environment()
    fingerprint = host_environment.machine.fingerprint
    target = past_target(
        describe(placement, training=options.train is not None),
        host_environment,
        parameters=_parameters(placement),
        staged=options.staged,
        cold_cache=options.cold_cache,
    )
    busy = any(warning.id == "other-load" for run in runs.runs for warning in run.warnings)
    past = past_runs(fingerprint)
    latency = combine(
        runs.runs,
        target_rel_error=options.asked_precision,
        cold_cache=options.cold_cache,
        failures=runs.failures,
        spread=run_spread(past, target, busy=busy),
    )
    yardstick = latency.yardstick
    if yardstick is not None:
        latency = msgspec.structs.replace(latency, yardstick=with_speed(yardstick, past, target))
    if latency.stop != "interrupted" and len(latency.processes) >= MIN_PROCESSES:
        medians = latency.process_medians
        run = PastRun(
            target=target,
            created=host_environment.created,
            medians=medians,
            yardstick={} if yardstick is None else yardstick.times,
            yardsticks=yardsticks_of(latency.processes),
            busy=busy,
        )
        remember(fingerprint, run)
    return latency


def _parameters(placement: Placement) -> int | None:
    model = module_of(placement.model)
    return None if model is None else ParameterCounts(model).total(model)
