"""Cells of a grid whose times follow a line that is known, and their generation."""

import math

from tests.support import records
from tests.support.generation_calls import call

from torchgauge.analyze.generation.cells import cell
from torchgauge.analyze.generation.fits import fits
from torchgauge.records.generation.call import CacheSize
from torchgauge.records.generation.generation import Generation
from torchgauge.records.target import TargetDescription

PREFILL = (2e-3, 2e-5, 2e-9)
DECODE = (1e-3, 1e-4, 3e-7)
SETUP, GAP = 0.0005, 0.0002
BATCHES, PROMPTS = (1, 2, 4), (64, 256, 1024)
TARGET = TargetDescription(
    spec="model.py", kind="file", name="Decoder", device="cpu", precision="fp32",
    precision_method="native",
)  # fmt: skip


def prefill_time(sequences, prompt, line=PREFILL):
    fixed, per_token, per_context = line
    pairs = sequences * prompt * (prompt + 1) / 2
    return fixed + per_token * sequences * prompt + per_context * pairs


def step_time(sequences, context, line=DECODE):
    fixed, per_token, per_context = line
    return fixed + per_token * sequences + per_context * sequences * context


def grid_cell(
    batch, prompt, *, new_tokens=33, calls=3, factor=lambda batch, context: 1.0, scale=1.0, **parts
):
    """A cell on the line: a step and the gap after it take `step_time` together."""

    def periods(context):
        return step_time(batch, context) * factor(batch, context) * scale

    contexts = range(prompt + 1, prompt + new_tokens)
    made = call(
        prompt=prompt,
        steps=tuple(periods(context) - GAP * scale for context in contexts),
        prefill=prefill_time(batch, prompt) * factor(batch, prompt) * scale,
        gap=GAP * scale,
        setup=SETUP * scale,
        batch=batch,
        cache=cache(batch, prompt + new_tokens - 1),
    )
    shape = {"batch": batch, "prompt": prompt, "beams": 1, "cache_kind": "dynamic"}
    return cell([made] * calls, **shape | parts)


def cache(batch, positions, per_position=1024, kind="DynamicCache"):
    size = per_position * batch * positions
    return CacheSize(
        kind=kind, held=size, used=size, formula=size, positions=positions, sequences=batch
    )


def grid(batches=BATCHES, prompts=PROMPTS, **parts):
    return [grid_cell(batch, prompt, **parts) for batch in batches for prompt in prompts]


def bent(batch, context):
    """30 % above the line where weights and cache no longer fit."""
    return math.exp(0.3 / (1 + math.exp(-2 * (math.log(batch * context) - math.log(700)))))


def generation(cells, **parts):
    cells = tuple(cells)
    return Generation(
        **{
            "target": TARGET,
            "environment": records.environment(),
            "cells": cells,
            "fits": fits(cells),
            **parts,
        }
    )
