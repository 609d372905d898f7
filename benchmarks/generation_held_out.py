"""Predictions of shapes that were left out of the fits, beside what these shapes took.

    python benchmarks/generation_held_out.py [EFFORT]

All cells of a grid (batch × prompt) are measured in the same rounds; prefill and decode are fitted
to nine of them, and the others are predicted: how many lie in the 95 % interval, and how far the
predictions are off. The goals are 93 % and a median error of 5 %.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable
from typing import NamedTuple

import torch
from msgspec.structs import replace

import torchgauge as tg
from torchgauge.analyze.generation.fits import fits
from torchgauge.analyze.generation.predictions import predict
from torchgauge.records.generation.generation import Generation

BATCHES, PROMPTS, NEW_TOKENS = (1, 2, 3, 4, 6), (32, 64, 128, 192, 256), 16
FITTED = set(itertools.product((1, 3, 6), (32, 128, 256)))


class Outcome(NamedTuple):
    """A prediction of a cell beside its measurement; `inside` is None without an interval."""

    inside: bool | None
    error: float
    width: float | None


def models() -> dict[str, Callable[[], torch.nn.Module]]:
    """Return small models, by name."""
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        MixtralConfig,
        MixtralForCausalLM,
    )

    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 4000}
    small = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, **heads}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    other = {"n_embd": 128, "n_layer": 4, "n_head": 8, "vocab_size": 4000}
    return {
        "Llama": lambda: LlamaForCausalLM(LlamaConfig(**small)),
        "GPT-2": lambda: GPT2LMHeadModel(GPT2Config(**other)),
        "Mixtral": lambda: MixtralForCausalLM(MixtralConfig(**small, **experts)),
    }


def outcomes(generation: Generation) -> dict[str, list[Outcome]]:
    """Return what becomes of each cell that was left out, by metric."""
    shapes = {(cell.batch, cell.prompt): cell for cell in generation.done}
    fitted = tuple(cell for shape, cell in shapes.items() if shape in FITTED)
    part = replace(generation, cells=fitted, fits=fits(fitted))
    results: dict[str, list[Outcome]] = {"ttft": [], "tpot": []}
    for (batch, prompt), cell in shapes.items():
        if (batch, prompt) in FITTED:
            continue
        expected = predict(
            part, batch=batch, prompt=prompt, new_tokens=NEW_TOKENS, cache_kind="dynamic"
        )
        if expected is None:
            continue
        for metric, rows in results.items():
            measured, value = getattr(cell, metric).value, getattr(expected, metric)
            interval = getattr(expected, f"{metric}_interval")
            inside = None if interval is None else interval.low <= measured <= interval.high
            width = None if interval is None else interval.high / value - 1
            rows.append(Outcome(inside, abs(value / measured - 1), width))
    return results


def main() -> None:
    """Print both figures for each model and metric, and for all."""
    effort = sys.argv[1] if len(sys.argv) > 1 else "usual"
    torch.set_num_threads(1)
    every: list[Outcome] = []
    print(f"{'model':10}{'metric':8}{'cells':>7}{'inside':>9}{'error':>9}{'interval':>10}")
    for name, make in models().items():
        torch.manual_seed(0)
        generation = tg.measure_generation(
            make().eval(), prompt=PROMPTS, batch=BATCHES, new_tokens=NEW_TOKENS, effort=effort,
            trees=False, memory=False, roofs=False,
        )  # fmt: skip
        for metric, rows in outcomes(generation).items():
            show(name, metric, rows)
            every += rows
    show("all", "", every)


def show(name: str, metric: str, rows: list[Outcome]) -> None:
    """Print how many lie inside, the median error and the median half-width of intervals."""
    inside = [row.inside for row in rows if row.inside is not None]
    widths = [row.width for row in rows if row.width is not None]
    share = f"{statistics.fmean(inside):.0%}" if inside else "-"
    width = f"{statistics.median(widths):.0%}" if widths else "-"
    error = statistics.median(row.error for row in rows)
    print(f"{name:10}{metric:8}{len(rows):7}{share:>9}{error:9.1%}{width:>10}", flush=True)


if __name__ == "__main__":
    main()
