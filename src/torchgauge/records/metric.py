"""The metrics that can be compared, limited and gated, by the names that users write."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torchgauge.errors import InputError
from torchgauge.records.figures import Figure, figures
from torchgauge.records.profile import Profile
from torchgauge.similar import did_you_mean, similar

Kind = Literal["timing", "size", "count", "memory"]


class Metric(NamedTuple):
    """One metric: `figure` is its name in `records/figures.py`, `better` the good direction.

    "timing" varies from run to run and needs statistics and the same machine. "size" is exact and
    the model's alone; "count" is exact for the same inputs, "memory" for the same torch as well.
    """

    name: str
    figure: str
    kind: Kind
    better: Literal["lower", "higher"] = "lower"

    @property
    def of_calls(self) -> bool:
        """Whether it is of generations, which repeat in one process: a few calls are a spread."""
        return self.figure.startswith("generation_")


METRICS = {
    metric.name: metric
    for metric in (
        Metric("latency", "latency_median", "timing"),
        Metric("p50", "latency_p50", "timing"),
        Metric("p90", "latency_p90", "timing"),
        Metric("p95", "latency_p95", "timing"),
        Metric("p99", "latency_p99", "timing"),
        Metric("throughput", "throughput_samples", "timing", "higher"),
        Metric("first_call", "latency_first_call", "timing"),
        Metric("device_time", "latency_device_time", "timing"),
        Metric("forward", "training_forward", "timing"),
        Metric("backward", "training_backward", "timing"),
        Metric("optimizer", "training_optimizer", "timing"),
        Metric("ttft", "generation_ttft", "timing"),
        Metric("tpot", "generation_tpot", "timing"),
        Metric("tokens", "generation_tokens", "timing", "higher"),
        Metric("params", "parameters", "size"),
        Metric("flops", "flops", "count"),
        Metric("macs", "macs", "count"),
        Metric("traffic", "traffic", "count"),
        Metric("disk", "disk", "size"),
        Metric("memory", "memory_peak", "memory"),
    )
}


def metric(name: str) -> Metric:
    """Return the metric of a name. Raises InputError `metric-unknown` with the near ones."""
    lower = name.lower()
    if lower in METRICS:
        return METRICS[lower]
    raise InputError(
        f"There is no metric '{name}'.",
        id="metric-unknown",
        cause="The metrics are " + ", ".join(METRICS) + ".",
        remedy=did_you_mean(similar(name, METRICS, cutoff=0.5), "Give one of them."),
    )


def figure_of(record: Profile, metric: Metric) -> Figure:
    """Return the record's figure; its value is None where it is unknown."""
    return next(figure for figure in figures(record) if figure.name == metric.figure)
