"""A call on a device that is not here, from its datasheet: least latency, memory, fit."""

from __future__ import annotations

from torchgauge.analyze.memory.training_memory import HIGH, LOW
from torchgauge.analyze.work.lower_bound import TORCH_DEFAULT, Fp32, row_bounds, summed
from torchgauge.records.memory.training_memory import TrainingMemory
from torchgauge.records.work.cost import Cost
from torchgauge.records.work.roofline import OtherDevice, Roofs
from torchgauge.records.work.size import Size

METHOD = (
    "Lower bound: for each operator the longer of operations over the dtype's dense peak and bytes "
    "over the memory's bandwidth, summed. Memory: parameters, buffers and inputs; of a training "
    "step the peak, with the workspaces of the CPU's kernels."
)


def estimate_on_device(
    cost: Cost,
    size: Size,
    roofs: Roofs,
    training: TrainingMemory | None = None,
    *,
    inputs: int = 0,
    fp32: Fp32 = TORCH_DEFAULT,
) -> OtherDevice:
    """Return the least latency of `cost` on a device, the memory it needs, and whether that fits.

    Latency is the sum over operators of the longer of two times: their operations at the dense peak
    of their dtype, and their bytes at the memory's bandwidth. Kernels reach 40 to 80 % of that, and
    launching them takes time too: expect longer. Shorter is possible where fusion or a cache saves
    traffic between operators. Memory is that of `training` with the optimizer it assumes; without
    it, or where no total is known, a lower bound: it can show that a call does not fit, never that
    it does. A step that is estimated nearer to the device's memory than estimates are to what was
    measured may fit or not.
    """
    bound = summed(row_bounds(cost, roofs, fp32))
    minimum_memory, total = size.bytes + inputs, None
    if training is not None:
        minimum_memory, total = training.assumed.lower_bound, training.assumed.total
    at_least = total is None or bool(size.uninitialized)
    memory = minimum_memory if total is None else total
    fits: bool | None = None
    if roofs.memory is not None and (
        minimum_memory > roofs.memory or (total or 0) / HIGH > roofs.memory
    ):
        fits = False
    elif roofs.memory is not None and not at_least and memory / LOW <= roofs.memory:
        fits = True
    return OtherDevice(
        device=roofs.device,
        latency=bound.time if bound.time or not bound.at_least else None,
        memory=memory,
        memory_available=roofs.memory,
        fits=fits,
        latency_at_least=bound.at_least,
        memory_at_least=at_least,
        method=METHOD,
        sources=roofs.sources,
    )
