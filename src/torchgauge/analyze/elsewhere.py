"""A call on a device that is not here, from its datasheet: least latency, memory, fit."""

from __future__ import annotations

from torchgauge.analyze.lower_bound import TORCH_DEFAULT, Fp32, row_bounds, summed
from torchgauge.model.cost import Cost
from torchgauge.model.roofline import Elsewhere, Roofs
from torchgauge.model.size import Size
from torchgauge.model.training_memory import TrainingMemory

METHOD = (
    "Lower bound: for each operator the longer of operations over the dtype's dense peak and bytes "
    "over the memory's bandwidth, summed. Memory: parameters, buffers and inputs; of a training "
    "step gradients, optimizer states and activations too."
)


def elsewhere(
    cost: Cost,
    size: Size,
    roofs: Roofs,
    training: TrainingMemory | None = None,
    *,
    inputs: int = 0,
    fp32: Fp32 = TORCH_DEFAULT,
) -> Elsewhere:
    """Return the least latency of `cost` on a device, the memory it needs, and whether that fits.

    Latency is the sum over operators of the longer of two times: their operations at the dense peak
    of their dtype, and their bytes at the memory's bandwidth. Kernels reach 40 to 80 % of that, and
    launching them takes time too: expect longer. Shorter is possible where fusion or a cache saves
    traffic between operators. Memory is that of `training` with the optimizer it assumes; without
    it parameters, buffers and `inputs` in bytes, a lower bound: it can show that a call does not
    fit, never that it does. A step that fits only in part of its phases may fit or not.
    """
    bound = summed(row_bounds(cost, roofs, fp32))
    at_least = training is None or bool(size.uninitialized)
    least = memory = size.bytes + inputs
    if training is not None:
        least, memory = training.assumed.least, training.assumed.total
    fits: bool | None = None
    if roofs.memory is not None and least > roofs.memory:
        fits = False
    elif roofs.memory is not None and memory <= roofs.memory and not at_least:
        fits = True
    return Elsewhere(
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
