"""What to try where memory ran out, by what lived then."""

from __future__ import annotations

from torchgauge import units
from torchgauge.records.memory.memory import OutOfMemory, Part

_BY_PART: dict[Part, str] = {
    "parameters": "a lower precision of the weights, or dividing them among devices (FSDP)",
    "gradients": "zero_grad(set_to_none=True) before the forward pass, or an optimizer that steps "
    "in the backward pass (register_post_accumulate_grad_hook), which frees each gradient",
    "optimizer": "an optimizer with a smaller state (SGD, Adafactor), or dividing it (FSDP, "
    "ZeroRedundancyOptimizer)",
    "activations": "a smaller batch whose gradients are accumulated, torch.autocast with bfloat16, "
    "or torch.utils.checkpoint around the layers",
}
_OTHER = "`torchgauge run --memory`, which names what holds these tensors"
# Of what lives: a part below it is no cause.
_LARGE = 0.2


def memory_remedies(event: OutOfMemory) -> list[str]:
    """Return what may help, the first for what takes most; nothing where nothing is known.

    A request that an empty device could not hold is none of what lives: its size is the cause.
    """
    alive = sum(event.parts.values())
    if event.requested and event.free is not None and event.requested > event.free + alive:
        room = units.size(event.free + alive)
        return [
            f"other sizes: with nothing else alive {room} would be free, less than the "
            f"{units.size(event.requested)} of this one tensor"
        ]
    remedies = ["fewer workers, or a smaller prefetch_factor"] if event.phase == "loading" else []
    for part, size in sorted(event.parts.items(), key=lambda entry: -entry[1]):
        if size > _LARGE * alive:
            share = units.percent(size / alive)
            remedies.append(f"{_BY_PART.get(part, _OTHER)} ({part}: {share} of what lived)")  # type: ignore[call-overload]
    return remedies
