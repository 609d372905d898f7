"""Runs of several processes with given medians and layer times, compared and judged."""

import msgspec
from tests.support import pages, records

from torchgauge.analyze.gate.stored import HostNoise
from torchgauge.analyze.gate.stored_gate import gate as stored_gate
from torchgauge.analyze.latency.run_spread import process_interval
from torchgauge.gates.gate_options import GateOptions
from torchgauge.records.profile import Profile
from torchgauge.records.timeline.tree import Tree

QUIET = HostNoise(between=0.001, sessions=20)
TEN = (0.0100, 0.0101, 0.0099, 0.0100, 0.0101, 0.0100)
ELEVEN = tuple(1.1 * median for median in TEN)


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


def changed_tree(**figures):
    rows = list(pages.tree().rows)
    at = next(i for i, row in enumerate(rows) if row.name == "aten::addmm")
    rows[at] = msgspec.structs.replace(rows[at], **figures)
    return Tree(rows=tuple(rows))


def layer_times(factor=1.0, noise=0.0):
    """Twenty layers in six processes, 1 ms each with a little noise; `factor` on the fourth."""
    wobble = (0.0, 1.0, -1.0, 0.5, -0.5, 0.2)
    return [
        {
            f"layer{i}": 1e-3 * (1 + noise * wobble[(p + i) % 6]) * (factor if i == 3 else 1.0)
            for i in range(20)
        }
        for p in range(6)
    ]


def layered(factor=1.0):
    rows = [pages.row("Net", "model", -1, host=0, type="Net")]
    for i in range(20):
        time = round(1e6 * (factor if i == 3 else 1.0))
        rows.append(pages.row(f"layer{i}", "layer", 0, host=time, type="Linear"))
    return Tree(rows=tuple(rows))


def gate(old, new, *, metrics=(), tolerances=(), **more):
    options = GateOptions.parsed(metrics, tolerances)
    return stored_gate(old, new, options.tolerances, usual=options.usual, **more)
