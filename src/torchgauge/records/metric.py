"""The metrics that can be compared, limited and gated, by the names that users write."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torchgauge.errors import InputError
from torchgauge.records.figures import figures
from torchgauge.records.headline.figure import Figure
from torchgauge.records.profile import Profile
from torchgauge.similar import did_you_mean, similar

Kind = Literal["timing", "size", "count", "memory"]


class Metric(NamedTuple):
    """One metric: `figure` is its name in `records/figures.py`, `better` the good direction.

    "timing" varies from run to run and needs statistics and the same machine. "size" is exact and
    the model's alone; "count" is exact for the same inputs, "memory" for the same torch as well.
    `level` is its figure where requests come under load, `rates` what a rate may count.
    """

    name: str
    figure: str
    kind: Kind
    better: Literal["lower", "higher"] = "lower"
    level: str = ""
    rates: tuple[str, ...] = ()

    @property
    def of_calls(self) -> bool:
        """Whether it repeats in one process, where a few values are a spread already.

        So do generations, by call, and energies, by window of calls.
        """
        return self.figure.startswith(("generation_", "energy"))

    @property
    def of_load(self) -> bool:
        """Whether only levels of load have it."""
        return self.figure.startswith("serving_")

    def figure_in(self, record: Profile) -> str:
        """Return the name of its figure in a record: under load requests count, not calls."""
        return self.level if self.level and record.serving is not None else self.figure


_COUNTED = ("samples", "tokens", "images", "calls")
METRICS = {
    metric.name: metric
    for metric in (
        Metric("latency", "latency_median", "timing", level="serving_latency_p50"),
        Metric("p50", "latency_p50", "timing", level="serving_latency_p50"),
        Metric("p90", "latency_p90", "timing", level="serving_latency_p90"),
        Metric("p95", "latency_p95", "timing", level="serving_latency_p95"),
        Metric("p99", "latency_p99", "timing", level="serving_latency_p99"),
        Metric(
            "throughput", "throughput_samples", "timing", "higher", "serving_completed", _COUNTED
        ),
        Metric("first_call", "latency_first_call", "timing"),
        Metric("device_time", "latency_device_time", "timing"),
        Metric("forward", "training_forward", "timing"),
        Metric("backward", "training_backward", "timing"),
        Metric("optimizer", "training_optimizer", "timing"),
        Metric("mfu", "mfu", "timing", "higher"),
        Metric("hfu", "hfu", "timing", "higher"),
        Metric("energy", "energy", "timing"),
        Metric("energy_per_token", "energy_per_token", "timing"),
        Metric("ttft", "generation_ttft", "timing", level="serving_ttft_p50"),
        Metric("tpot", "generation_tpot", "timing", level="serving_tpot_p50"),
        Metric("tokens", "generation_tokens", "timing", "higher", "serving_tokens", ("tokens",)),
        Metric("ttft_p95", "serving_ttft_p95", "timing"),
        Metric("ttft_p99", "serving_ttft_p99", "timing"),
        Metric("tpot_p95", "serving_tpot_p95", "timing"),
        Metric("itl", "serving_itl_p50", "timing"),
        Metric("itl_p99", "serving_itl_p99", "timing"),
        Metric("goodput", "serving_goodput", "timing", "higher", rates=("calls",)),
        Metric("capacity", "serving_capacity", "timing", "higher", rates=("calls",)),
        Metric("errors", "serving_errors", "timing"),
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
    name = metric.figure_in(record)
    unknown = Figure(name, "", "measured", "", None)
    return next((figure for figure in figures(record) if figure.name == name), unknown)
