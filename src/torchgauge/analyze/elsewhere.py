"""A call on a device that is not here, from its datasheet: least latency, memory, fit."""

from __future__ import annotations

from torchgauge.analyze.lower_bound import TORCH_DEFAULT, Fp32, row_bounds, summed
from torchgauge.model.cost import Cost
from torchgauge.model.roofline import Elsewhere, Roofs
from torchgauge.model.size import Size

METHOD = (
    "Lower bound: for each operator the longer of operations over the dtype's dense peak and bytes "
    "over the memory's bandwidth, summed. Memory: parameters, buffers, and what was told of "
    "inputs, activations and training states."
)


def elsewhere(
    cost: Cost,
    size: Size,
    roofs: Roofs,
    activations: int | None = None,
    *,
    inputs: int = 0,
    states: int = 0,
    fp32: Fp32 = TORCH_DEFAULT,
) -> Elsewhere:
    """Return the least latency of `cost` on a device, the memory it needs, and whether that fits.

    Latency is the sum over operators of the longer of two times: their operations at the dense peak
    of their dtype, and their bytes at the memory's bandwidth. Kernels reach 40 to 80 % of that, and
    launching them takes time too: expect longer. Shorter is possible where fusion or a cache saves
    traffic between operators. Memory is parameters and buffers plus `inputs`, `activations` at
    their peak, and `states` (gradients, optimizer states), in bytes. Without `activations` it is a
    lower bound: it can show that a call does not fit, never that it does. Fragmentation and the
    driver's own few hundred MB are in no figure.
    """
    bound = summed(row_bounds(cost, roofs, fp32))
    at_least = activations is None or bool(size.uninitialized)
    memory = size.bytes + inputs + states + (activations or 0)
    fits: bool | None = None
    if roofs.memory is not None:
        fits = False if memory > roofs.memory else (None if at_least else True)
    return Elsewhere(
        device=roofs.device,
        latency=bound.time if roofs.bandwidth or roofs.peaks else None,
        memory=memory,
        memory_available=roofs.memory,
        fits=fits,
        latency_at_least=bound.at_least,
        memory_at_least=at_least,
        method=METHOD,
        sources=roofs.sources,
    )
