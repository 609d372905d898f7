"""Measure how a language model generates, or watch a program's own generation."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchgauge.api.preparation import measuring, require_torch
from torchgauge.measure.effort import EffortName
from torchgauge.records.generation.generation import Generation

if TYPE_CHECKING:
    from torch import nn

    from torchgauge.measure.generation.generation_options import GenerationOptions
    from torchgauge.measure.generation.watch import GenerationWatch
    from torchgauge.targets.target import TargetRequest


def measure_generation(
    model: nn.Module,
    inputs: Any = None,
    *,
    new_tokens: int = 64,
    prompt: int | Sequence[int] | None = None,
    batch: int | Sequence[int] | None = None,
    cache: str | Sequence[str] = "dynamic",
    beams: int = 1,
    assistant: nn.Module | None = None,
    predict: Sequence[tuple[int, int]] = (),
    effort: EffortName = "usual",
    budget: float | None = None,
    device: str | None = None,
    trees: bool = True,
    memory: bool = True,
    roofs: bool = True,
    energy: bool = False,
    progress: bool | None = None,
) -> Generation:
    """Measure prefill, decode steps and cache of a language model by prompt, batch and cache.

    Every combination is a cell, in turn and greedily; Ctrl-C returns what was measured.

    Args:
        model: One with `generate()`, or whose forward is (ids, past_key_values=…, use_cache=True).
        inputs: A prompt: token ids, or what a tokenizer or a processor returns; None draws ids.
        new_tokens: Tokens that each call makes.
        prompt: Tokens of a prompt, one number or several; None: those of the inputs, or 128.
        batch: Prompts at once, one number or several; None: those of the inputs, or 1.
        cache: "dynamic", "static" or "none", or several.
        beams: Sequences per prompt.
        assistant: A draft model for assisted decoding.
        predict: Shapes (batch, prompt) to estimate from the fits.
        effort: "quick" times 3 calls of a cell, "usual" 5, "precise" 15.
        budget: Seconds for all calls; at least one of each cell is timed.
        device: Where to run; None leaves the model where it is.
        trees: Record a prefill and a decode step by layer and operator.
        memory: Measure the peak of the last step.
        roofs: Hold times to the device's roofs.
        energy: Measure the joules of calls, and of a token (extra `energy`).
        progress: Show progress; None does so on a terminal.

    Raises InputError `no-generation`, `option-invalid`, `cache-unknown`.

    Examples:
        >>> import torch, torchgauge as tg
        >>> class Model(torch.nn.Embedding):
        ...     def generate(self, input_ids, max_new_tokens):
        ...         for _ in range(max_new_tokens):
        ...             chosen = self(input_ids)[:, -1:].argmax(-1)
        ...             input_ids = torch.cat([input_ids, chosen], dim=1)
        ...         return input_ids
        >>> generation = tg.measure_generation(
        ...     Model(50, 50), prompt=(8, 16), new_tokens=4, effort="quick", roofs=False
        ... )
        >>> [(cell.prompt, cell.status, cell.ttft.calls) for cell in generation.cells]
        [(8, 'done', 3), (16, 'done', 3)]
    """
    require_torch()
    from torchgauge.measure.generation.generation import measure
    from torchgauge.measure.generation.generation_options import GenerationOptions, several
    from torchgauge.targets.builds.source import Source

    options = GenerationOptions(
        prompts=several(prompt), batches=several(batch), new_tokens=new_tokens,
        caches=several(cache), beams=beams, predict=tuple(predict), effort=effort, budget=budget,
        trees=trees, memory=memory, roofs=roofs, energy=energy,
    )  # fmt: skip
    raw = functools.partial(Source.of_object, device=device, raw=True)
    draft = None if assistant is None else raw(assistant, None)
    with measuring(progress) as display:
        return measure(raw(model, inputs), options, display, assistant=draft)


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


def generation_request(
    request: TargetRequest,
    options: GenerationOptions,
    assistant: TargetRequest | None = None,
    *,
    progress: bool | None = None,
) -> Generation:
    """Measure the generation of a target named as on the command line, with a draft model if given.

    Raises what loading raises, and InputError `no-generation` for a model that makes no tokens.
    """
    require_torch()
    from torchgauge.measure.generation.generation import measure
    from torchgauge.targets.builds.source import Source

    with measuring(progress) as display:
        draft = None if assistant is None else Source.of_request(assistant)
        return measure(Source.of_request(request), options, display, assistant=draft)
