"""Warnings about device times: work of unknown origin, CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence

from torchgauge.records.record import MeasurementWarning
from torchgauge.records.trace.kernel import Kernel


def device_warnings(
    kernels: Sequence[Kernel], *, has_launches: bool = True
) -> tuple[MeasurementWarning, ...]:
    """Return the warnings about the device work of a recording.

    `has_launches`: it has the launches of all work that was launched in it.
    """
    warnings = []
    gpu_kernels = [kernel for kernel in kernels if kernel.work == "kernel"]
    unlaunched = [kernel for kernel in gpu_kernels if not kernel.launched]
    if unlaunched and has_launches:
        warnings.append(
            MeasurementWarning(
                id="launched-before",
                message=f"{_calls(unlaunched):,} of {_calls(gpu_kernels):,} kernels, "
                f"{_share(unlaunched, gpu_kernels)} of their time, "
                "have no launch in the recording: whose they are is unknown.",
                cause="They were launched before the recording began, or their launch was lost.",
                remedy="Synchronize before the recording begins: torch.cuda.synchronize().",
            )
        )
    graphs = [kernel for kernel in gpu_kernels if kernel.graph]
    if graphs:
        warnings.append(
            MeasurementWarning(
                id="cuda-graph",
                message=f"{_calls(graphs):,} of {_calls(gpu_kernels):,} kernels, "
                f"{_share(graphs, gpu_kernels)} of their time, "
                "ran from CUDA graphs: they belong to the launch of the graph.",
                cause="A graph is launched as one: layers and operators do not run on the host.",
                remedy="Record without CUDA graphs to see layers.",
            )
        )
    return tuple(warnings)


def _calls(kernels: Sequence[Kernel]) -> int:
    return sum(kernel.calls for kernel in kernels)


def _share(part: Sequence[Kernel], total: Sequence[Kernel]) -> str:
    time = [sum(sum(kernel.durations) for kernel in kernels) for kernels in (part, total)]
    return f"{time[0] / max(time[1], 1) * 100:.1f} %"
