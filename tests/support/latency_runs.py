"""Runs of several processes with given medians, for comparisons."""

import msgspec
from tests.support import pages, records

from torchgauge.analyze.latency.between_processes import process_interval
from torchgauge.records.profile import Profile


def timed(*medians: float, layers: list[dict[str, float]] | None = None, **changes) -> Profile:
    """A profile whose processes have these medians (seconds), and these layer times."""
    base = records.profile(**{"tree": pages.tree(), **changes})
    (run,) = base.latency.processes
    runs = tuple(
        msgspec.structs.replace(
            run,
            samples=(median,) * 5,
            warmup=0,
            median=median,
            layer_times={} if layers is None else layers[number],
        )
        for number, median in enumerate(medians)
    )
    middle = sorted(medians)[len(medians) // 2]
    latency = msgspec.structs.replace(
        base.latency,
        median=middle,
        p50=middle,
        interval=process_interval(medians),
        processes=runs,
        warnings=(),
    )
    return msgspec.structs.replace(base, latency=latency)
