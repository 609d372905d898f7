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
        >>> import torch, transformers, torchgauge as tg
        >>> sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        >>> config = transformers.LlamaConfig(vocab_size=64, intermediate_size=64, **sizes)
        >>> model = transformers.LlamaForCausalLM(config).eval()
        >>> with tg.watch_generation(model) as watch:
        ...     output = model.generate(torch.ones(1, 8, dtype=torch.long), min_new_tokens=4,
        ...                             max_new_tokens=4, pad_token_id=0)
        >>> [(call.prompt, call.new_tokens, call.forwards.stage) for call in watch.calls]
        [(8, 4, ('prefill', 'decode', 'decode', 'decode'))]
    """
    require_torch()
    from torchgauge.measure.generation.watch import GenerationWatch

    return GenerationWatch(model, assistant=assistant)
