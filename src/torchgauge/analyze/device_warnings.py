"""What the reader of device times must know: work of unknown origin, CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.model.kernel import Kernel
from torchgauge.model.record import MeasurementWarning


def device_warnings(
    kernels: Sequence[Kernel], *, launches_told: bool = True
) -> tuple[MeasurementWarning, ...]:
    """Return the warnings about all device work of a recording.

    `launches_told`: it has the launches of all work that was launched in it.
    """
    found = []
    every = [one for one in kernels if one.work == "kernel"]
    older = [one for one in every if not one.launched]
    if older and launches_told:
        found.append(
            MeasurementWarning(
                id="launched-before",
                message=f"{_calls(older):,} of {_calls(every):,} kernels, {_share(older, every)} "
                "of their time, have no launch in the recording: whose they are is unknown.",
                cause="They were launched before the recording began, or their launch was lost.",
                remedy="Synchronize before the recording begins: torch.cuda.synchronize().",
            )
        )
    graphs = [one for one in every if one.graph]
    if graphs:
        found.append(
            MeasurementWarning(
                id="cuda-graph",
                message=f"{_calls(graphs):,} of {_calls(every):,} kernels, {_share(graphs, every)} "
                "of their time, ran from CUDA graphs: they belong to the launch of the graph.",
                cause="A graph is launched as one: layers and operators do not run on the host.",
                remedy="Record without CUDA graphs to see layers.",
            )
        )
    return tuple(found)


def _calls(kernels: Sequence[Kernel]) -> int:
    return sum(one.calls for one in kernels)


def _share(part: Sequence[Kernel], every: Sequence[Kernel]) -> str:
    time = [sum(sum(one.durations) for one in kernels) for kernels in (part, every)]
    return f"{time[0] / max(time[1], 1) * 100:.1f} %"
