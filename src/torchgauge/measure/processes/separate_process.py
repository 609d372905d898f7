"""A whole record in a process of its own: the target may run code that is not the user's."""

from __future__ import annotations

import abc
import dataclasses

import msgspec

from torchgauge.errors import MeasurementError
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.processes import ask
from torchgauge.measure.timeline.timeline_options import TimelineOptions
from torchgauge.measure.work.count import CountSource
from torchgauge.progress import Progress
from torchgauge.records.profile import Profile
from torchgauge.records.serving.serving import Serving
from torchgauge.records.work.size import Count
from torchgauge.targets.builds.home import Home
from torchgauge.targets.builds.source import Source


def profile_in_separate_process(
    source: Source,
    options: LatencyOptions,
    progress: Progress,
    timeline: TimelineOptions,
    home: Home | None = None,
) -> Profile:
    """Load and measure in a fresh process, and return the record it made.

    `home` is where the target's code lives, where that is not as for this process.

    Raises what loading raises there; MeasurementError `child-killed`, `child-timeout`,
    `child-failed`; KeyboardInterrupt where nothing was measured before it.
    """
    progress.start("measuring in a process of its own")
    answer, interrupted = ask("profile", source, options, timeline, home)
    if answer.profile is None:
        raise without_record()
    record = answer.profile
    passes = tuple(msgspec.structs.replace(done, process="fresh") for done in record.passes)
    return msgspec.structs.replace(
        record, passes=passes, interrupted=record.interrupted or interrupted
    )


def count_in_separate_process(source: CountSource) -> Count:
    """Load and count in a fresh process. Raises as `profile_in_separate_process`."""
    answer, _ = ask("count", source, LatencyOptions())
    if answer.count is None:
        raise without_record()
    return answer.count


def serve_in_separate_process(source: ServingSource, seconds: float, progress: Progress) -> Serving:
    """Load and put under load for `seconds` in a fresh process.

    Raises as `profile_in_separate_process`.
    """
    progress.start("measuring in a process of its own")
    answer, interrupted = ask("serving", source, LatencyOptions(budget=seconds))
    if answer.serving is None:
        raise without_record()
    return msgspec.structs.replace(
        answer.serving, interrupted=answer.serving.interrupted or interrupted
    )


def without_record(work: str = "measuring") -> MeasurementError:
    """Return the error that a process of its own gave nothing back."""
    return MeasurementError(
        f"A {work} process ended without a record.",
        id="child-failed",
        remedy="Run it again; if it stays so, please report it.",
    )


@dataclasses.dataclass(frozen=True)
class ServingSource(Source, abc.ABC):
    """A source that is put under load in a process of its own; a room above knows how."""

    @abc.abstractmethod
    def serving(self) -> Serving:
        """Load the target, put it under load, and return the record."""
