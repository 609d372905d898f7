"""A whole record in a process of its own: the target may run code that is not the user's."""

from __future__ import annotations

import abc
import dataclasses
import functools

import msgspec

from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes.child_work import Sent
from torchgauge.measure.processes.processes import ask
from torchgauge.measure.timeline.timeline_options import TimelineOptions
from torchgauge.measure.work.count import CountSource, count
from torchgauge.progress import Progress, Silent
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
    work = functools.partial(_profile, timeline)
    record, interrupted = ask(work, Profile, source, options, home)
    passes = tuple(msgspec.structs.replace(done, process="fresh") for done in record.passes)
    return msgspec.structs.replace(
        record, passes=passes, interrupted=record.interrupted or interrupted
    )


def _profile(timeline: TimelineOptions, sent: Sent[Source]) -> Profile:
    from torchgauge.measure import plan  # with every probe, which the parent does not need

    return plan.profile(sent.source, sent.options, Silent(), timeline)


def count_in_separate_process(source: CountSource) -> Count:
    """Load and count in a fresh process. Raises as `profile_in_separate_process`."""
    return ask(_count, Count, source, LatencyOptions())[0]


def _count(sent: Sent[CountSource]) -> Count:
    return count(sent.source.target, sent.source.options, count_in_separate_process)


def serve_in_separate_process(source: ServingSource, seconds: float, progress: Progress) -> Serving:
    """Load and put under load for `seconds` in a fresh process.

    Raises as `profile_in_separate_process`.
    """
    progress.start("measuring in a process of its own")
    serving, interrupted = ask(_serving, Serving, source, LatencyOptions(budget=seconds))
    return msgspec.structs.replace(serving, interrupted=serving.interrupted or interrupted)


def _serving(sent: Sent[ServingSource]) -> Serving:
    return sent.source.serving()


@dataclasses.dataclass(frozen=True)
class ServingSource(Source, abc.ABC):
    """A source that is put under load in a process of its own; a room above knows how."""

    @abc.abstractmethod
    def serving(self) -> Serving:
        """Load the target, put it under load, and return the record."""
