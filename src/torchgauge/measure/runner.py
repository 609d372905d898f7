"""Runs the probes of a measurement in order: one that fails leaves a warning, the others go on."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from torchgauge.errors import TorchgaugeError, text_of
from torchgauge.forks import Owner
from torchgauge.measure.interrupts import Interrupts
from torchgauge.progress import Progress
from torchgauge.records.profile import ProbeRun
from torchgauge.records.record import MeasurementWarning
from torchgauge.targets.hygiene import not_restored

T = TypeVar("T")

# Where the step itself fails, the other probes that run it would only say so again; where it
# killed a process of its own, it would kill this one and the record with it.
_RAISED = "forward-raised"
STEP_FAILURES = (
    _RAISED,
    "output-deferred",
    "model-exited",
    "recursion-limit",
    "precision-unsupported",
    "training-missing",
    "child-killed",
    "child-timeout",
    "child-failed",
)
# What a machine or a provider does not tell is unknown, and no failure.
UNKNOWN_HERE = ("provider-unread", "memory-unreadable")


class Runner:
    """Runs the probes one after the other; a failing one leaves the others' results.

    The error of an essential probe is raised, unless the runner is to keep going.
    """

    def __init__(
        self, progress: Progress, interrupts: Interrupts, *, keep_going: bool = True
    ) -> None:
        self.progress = progress
        self.interrupts = interrupts
        self.keep_going = keep_going
        self._owner = Owner()
        self.passes: list[ProbeRun] = []
        self.warnings: list[MeasurementWarning] = []
        self.interrupted = False
        self.blocked = ""
        self.forward_raised = False

    def attempt(
        self,
        probe: str,
        measure: Callable[[], T],
        *,
        fresh: bool = False,
        tells: bool = True,
        essential: bool = False,
    ) -> T | None:
        """Return the probe's result; None where it failed or may no longer run.

        `tells` says that where the step fails in this probe, it would fail in the next ones too.
        `essential` is the first probe that runs the step: where it fails, there is nothing to tell.
        """
        if self.interrupted:
            return None
        if self.blocked:
            self.warnings.append(
                MeasurementWarning(
                    id="skipped", probe=probe, failed=True, message=f"Not measured: {self.blocked}"
                )
            )
            return None
        start = time.perf_counter()
        try:
            with self.interrupts.allowed():
                self.progress.start(probe)
                return measure()
        except TorchgaugeError as error:
            if essential and not self.keep_going:
                raise
            self.warnings += (_warning(error, probe), *not_restored(error, probe))
            if tells and error.id in STEP_FAILURES:
                self.blocked, self.forward_raised = error.message, error.id == _RAISED
        except KeyboardInterrupt as interrupt:
            if self._owner.in_fork:
                raise
            self.interrupted = True
            self.warnings += not_restored(interrupt, probe)
        except Exception as error:  # the last net: what others measured must stay
            if self._owner.in_fork:
                raise
            self.warnings += (_crash(probe, error), *not_restored(error, probe))
        finally:
            duration = time.perf_counter() - start
            self.passes.append(
                ProbeRun(probe=probe, duration=duration, process="fresh" if fresh else "this")
            )
        return None

    def heed(self, warnings: Sequence[MeasurementWarning]) -> None:
        """Run the step no more where one of several processes failed by it: see STEP_FAILURES."""
        for warning in warnings:
            if warning.failed and warning.id in STEP_FAILURES:
                self.blocked, self.forward_raised = warning.message, warning.id == _RAISED


def _warning(error: TorchgaugeError, probe: str) -> MeasurementWarning:
    warning = MeasurementWarning.from_error(error, probe)
    return msgspec.structs.replace(warning, failed=error.id not in UNKNOWN_HERE)


def _crash(probe: str, error: Exception) -> MeasurementWarning:
    return MeasurementWarning(
        id="probe-crashed",
        message=f"The {probe} probe ended with an error that torchgauge does not know.",
        probe=probe,
        failed=True,
        cause=text_of(error),
        remedy="Please report it with the traceback.",
        traceback="".join(traceback.format_exception(error)),
    )
