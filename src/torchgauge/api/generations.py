"""Watch how a language model generates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchgauge.api.preparation import require_torch

if TYPE_CHECKING:
    from torchgauge.measure.generation.watch import GenerationWatch


def watch_generation(model: Any, *, assistant: Any = None) -> GenerationWatch:
    """Return a context manager that times a program's own generation: `with … as watch:`.

    Every `generate()` in the block is a call, in any thread and however it ends, and so is every
    run of a decode loop that calls the model itself. Each forward is assigned to its stage by the
    tokens that it computes. Tokens, random numbers and caches are as they would be without it.
    After the block use `watch.calls` and `watch.record`; other threads cannot measure until it
    ends. A loop's call begins with its first forward and ends with its last.

    Args:
        model: The model that generates, compiled or wrapped as it is, or a pipeline that has it.
        assistant: The draft model of a decode loop of your own; that of `generate()` is seen.

    Raises InputError `not-a-module`; on entering `timeline-active`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> class Model(torch.nn.Embedding):
        ...     def generate(self, ids, tokens):
        ...         for _ in range(tokens):
        ...             ids = torch.cat([ids, self(ids)[:, -1:].argmax(-1)], dim=1)
        ...         return ids
        >>> model, prompt = Model(50, 50), torch.ones(1, 8, dtype=torch.long)
        >>> with tg.watch_generation(model) as watch:
        ...     output = model.generate(prompt, 3)
        >>> [(call.prompt, call.new_tokens, call.forwards.stage) for call in watch.calls]
        [(8, 3, ('prefill', 'decode', 'decode'))]
    """
    require_torch()
    from torchgauge.measure.generation.watch import GenerationWatch

    return GenerationWatch(model, assistant=assistant)
