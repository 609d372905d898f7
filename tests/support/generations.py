"""Records of generation made by hand: a small Llama-like model whose times follow a formula.

A prefill takes 5 ms + 0.45 ms a token + 0.1 µs a pair, a decode forward 8 ms + 0.9 ms a sequence +
0.5 µs a position, and 0.8 ms + 0.05 ms a sequence pass between two forwards. So medians, fits and
predictions of these records are known beforehand.
"""

import functools
import math
import statistics

import msgspec
from tests.support import records

from torchgauge.records.finding import Finding
from torchgauge.records.generation.call import CacheSize, Forwards, GenerationCall
from torchgauge.records.generation.cell import (
    Coefficient,
    GenerationCell,
    GenerationPrediction,
    RepeatedTime,
    StageFit,
    StageWork,
)
from torchgauge.records.generation.generation import Generation, LargestBatch, StageTree
from torchgauge.records.record import Interval
from torchgauge.records.target import TargetDescription
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.work.roofline import BandwidthPoint, Roofs
from torchgauge.records.work.size import DtypeSize, Size

# Bytes of a position of a sequence: keys and values × layers × heads of keys × their size × fp32.
POSITION = 2 * 8 * 2 * 64 * 4
WEIGHTS = 107_000_000  # bytes, without the table of embeddings
PEAK, BANDWIDTH = 3e11, 2e10
# Of a call against the formula; the first is warm-up. Their geometric mean is near 1.
FACTORS = (1.4, 1.0, 1.01, 0.992)
STUDENT = {3: 4.3027, 4: 3.1824, 5: 2.7764}  # the 97.5 % quantile by how many calls there are


def prefill_seconds(sequences, prompt):
    return 5e-3 + 4.5e-4 * sequences * prompt + 1e-7 * sequences * prompt * prompt / 2


def step_seconds(sequences, context):
    return 8e-3 + 9e-4 * sequences + 5e-7 * sequences * context


def gap_seconds(sequences):
    return 8e-4 + 5e-5 * sequences


def cache_size(sequences, positions, kind="dynamic", room=None):
    """Return the size of a cache; a static one has `room` for more positions than are used."""
    used = POSITION * sequences * positions
    held = used if room is None else POSITION * sequences * room
    reason = "" if held == used else f"It has room for {room:,} positions."
    return CacheSize(
        kind="DynamicCache" if kind == "dynamic" else "StaticCache", held=held, used=used,
        formula=used, reason=reason, positions=positions, sequences=sequences,
        elements={"float32": held},
    )  # fmt: skip


def call(batch=1, prompt=128, new_tokens=16, *, beams=1, cache_kind="dynamic", factor=1.0):
    """Return a call of `generate` whose times are the formula's × `factor`."""
    sequences = batch * beams
    begin, begins, durations, tokens, cached = 1e-3 * factor, [], [], [], []
    for index in range(new_tokens):
        context = prompt + index - 1 if index else 0
        is_prefill, has_cache = index == 0, cache_kind != "none"
        if is_prefill or not has_cache:
            seconds, computed = prefill_seconds(sequences, prompt + index), prompt + index
        else:
            seconds, computed = step_seconds(sequences, context), 1
        begins.append(begin)
        durations.append(seconds * factor)
        tokens.append(computed)
        cached.append(context if has_cache else 0)
        begin += (seconds + gap_seconds(sequences)) * factor
    forwards = Forwards(
        begin=tuple(begins), duration=tuple(durations), tokens=tuple(tokens), cached=tuple(cached),
        stage=("prefill",) + ("decode",) * (new_tokens - 1), sequences=(sequences,) * new_tokens,
    )  # fmt: skip
    held = None
    if cache_kind != "none":
        room = prompt + 512 if cache_kind == "static" else None
        held = cache_size(sequences, prompt + new_tokens - 1, cache_kind, room)
    return GenerationCall(
        by="generate", batch=batch, sequences=sequences, prompt=prompt, new_tokens=new_tokens,
        duration=begin, forwards=forwards, cache=held,
    )  # fmt: skip


def repeated(values):
    """Return the median with the interval of the geometric mean; None below three values."""
    values = [value for value in values if value is not None]
    if not values:
        return None
    interval, count = None, len(values)
    if count >= 3:
        logs = [math.log(value) for value in values]
        half = STUDENT[count] * statistics.stdev(logs) / math.sqrt(count)
        middle = statistics.mean(logs)
        interval = Interval(low=math.exp(middle - half), high=math.exp(middle + half))
    return RepeatedTime(value=statistics.median(values), interval=interval, calls=count)


def work(sequences, prompt, new_tokens, times):
    """Return the work of the prefill and of the first and the last decode step."""
    stages = [("prefill", 0, sequences * prompt, prompt)]
    stages += [("decode", prompt, sequences, 1), ("decode", prompt + new_tokens - 2, sequences, 1)]
    for stage, cached, positions, new in stages:
        flops = 2 * WEIGHTS // 4 * positions + 4 * 8 * 512 * positions * (cached + new)
        moved = POSITION * sequences * (cached + new)
        activations = 40_000 * positions
        compute = flops / PEAK
        memory = (WEIGHTS + moved + activations) / BANDWIDTH
        yield StageWork(
            stage=stage, cached=cached, flops=flops, matmul_flops=flops, weight_bytes=WEIGHTS,
            cache_bytes=moved, activation_bytes=activations, lower_bound=max(compute, memory),
            bound="compute" if compute > memory else "memory",
            reached=max(compute, memory) / times[stage],
        )  # fmt: skip


def cell(
    batch=1, prompt=128, new_tokens=16, *, beams=1, cache_kind="dynamic", slower=1.0
):  # fmt: skip
    """Return a cell of one call for warm-up and three that are timed, `slower` than the formula."""
    calls = tuple(
        call(batch, prompt, new_tokens, beams=beams, cache_kind=cache_kind, factor=slower * factor)
        for factor in FACTORS
    )
    return of_calls(calls, 1, beams, cache_kind, work_known=cache_kind != "none")


def of_calls(calls, warmup=0, beams=1, cache_kind="dynamic", *, work_known=False):
    """Return the cell of some calls of one shape."""
    timed, shape = calls[warmup:], calls[-1]
    steps = [statistics.mean(_steps(timed_call)) for timed_call in timed if _steps(timed_call)]
    step, prefill = repeated(steps), repeated([timed_call.prefill for timed_call in timed])
    times = {"prefill": prefill.value, "decode": step.value} if step else {}
    sequences = shape.sequences
    peak = WEIGHTS + 65_536_000 + 2_000_000 * sequences
    peak += POSITION * sequences * (shape.prompt + shape.new_tokens)
    return GenerationCell(
        batch=shape.batch, prompt=shape.prompt, new_tokens=shape.new_tokens, beams=beams,
        cache_kind=cache_kind, calls=calls, warmup=warmup,
        ttft=repeated([timed_call.first_token for timed_call in timed]),
        tpot=repeated([timed_call.per_token for timed_call in timed]),
        end_to_end=repeated([timed_call.duration for timed_call in timed]),
        prefill=prefill, step=step,
        between=repeated([statistics.mean(timed_call.gaps) for timed_call in timed]),
        tokens_per_second=repeated(
            [shape.batch * shape.new_tokens / timed_call.duration for timed_call in timed]
        ),
        prefill_tokens_per_second=repeated(
            [sequences * shape.prompt / timed_call.prefill for timed_call in timed]
        ),
        cache=shape.cache,
        memory=msgspec.structs.replace(
            records.memory(), peak=peak, parameters=peak - 550, activations=400, buffers=0
        ) if work_known else None,
        work=tuple(work(sequences, shape.prompt, shape.new_tokens, times)) if work_known else (),
    )  # fmt: skip


def _steps(timed_call):
    forwards = timed_call.forwards
    return [forwards.duration[index] for index in forwards.indices("decode")]


def ended(status, reason, batch=1, prompt=128, cache_kind="dynamic"):
    """Return a cell without figures."""
    return GenerationCell(
        batch=batch, prompt=prompt, new_tokens=16, cache_kind=cache_kind, status=status,
        reason=reason, error="out-of-memory" if status == "out of memory" else "",
    )  # fmt: skip


def target(**changes):
    known = {"spec": "model.py:make", "kind": "python", "name": "TinyLlama", "device": "cpu",
             "precision": "fp32", "precision_method": "native"}  # fmt: skip
    return TargetDescription(**{**known, **changes})


def fit(stage, fixed, per_token, per_context, cells, cache_kind="dynamic"):
    """Return a fit whose intervals are 3 % to either side."""

    def coefficient(value):
        return Coefficient(value=value, interval=Interval(low=0.97 * value, high=1.03 * value))

    return StageFit(
        stage=stage, cache_kind=cache_kind, fixed=coefficient(fixed),
        per_token=coefficient(per_token), per_context=coefficient(per_context), spread=0.01,
        quantile=2.306, covariance=((1e-9, 0.0, 0.0), (0.0, 1e-12, 0.0), (0.0, 0.0, 1e-18)),
        cells=cells,
    )  # fmt: skip


def fits(cells):
    """Return the formulas of this file as fits; that of decode has the time between forwards."""
    done = [cell for cell in cells if cell.done]
    steps = tuple((cell.batch, cell.prompt + 8, cell.tpot.value) for cell in done)
    prefills = tuple((cell.batch, cell.prompt, cell.prefill.value) for cell in done)
    return (
        fit("prefill", 5e-3, 4.5e-4, 1e-7, prefills),
        fit("decode", 8.8e-3, 9.5e-4, 5e-7, steps),
    )


def prediction(batch, prompt, new_tokens=16, *, bounded=True):
    """Return what the formulas say of a shape, ±4 %."""
    first = prefill_seconds(batch, prompt) + gap_seconds(batch)
    later = step_seconds(batch, prompt + new_tokens / 2) + gap_seconds(batch)

    def around(value):
        return Interval(low=0.96 * value, high=1.04 * value) if bounded else None

    return GenerationPrediction(
        batch=batch, prompt=prompt, new_tokens=new_tokens, cache_kind="dynamic", ttft=first,
        tpot=later, ttft_interval=around(first), tpot_interval=around(later),
        cache_bytes=POSITION * batch * (prompt + new_tokens - 1), extrapolated=prompt > 1024,
    )  # fmt: skip


def tree(seconds):
    """Return the layers and operators of a forward that takes so long."""
    total = round(seconds * 1e9)
    shares = {
        "self_attn": ("LlamaAttention", "aten::scaled_dot_product_attention", 0.22),
        "mlp": ("LlamaMLP", "aten::mm", 0.58),
    }
    rows = [
        TreeRow(name="TinyLlama", kind="model", parent=-1, calls=1, type="TinyLlama",
                host=total // 20),
        TreeRow(name="lm_head", kind="layer", parent=0, calls=1, path="lm_head", type="Linear",
                host=total // 100),
        TreeRow(name="aten::mm", kind="operator", parent=1, calls=1, host=total // 8,
                flops=32_768_000, bytes=65_600_000),
    ]  # fmt: skip
    for name, (type_name, operator, share) in shares.items():
        rows += [
            TreeRow(name=name, kind="layer", parent=0, calls=8, path=f"model.layers.0.{name}",
                    type=type_name, host=round(total * share * 0.3)),
            TreeRow(name=operator, kind="operator", parent=len(rows), calls=8,
                    host=round(total * share * 0.7), flops=60_000_000, bytes=30_000_000),
        ]  # fmt: skip
    return Tree(rows=tuple(rows))


def roofs():
    return Roofs(
        device="A CPU", source="measured", method="products and copies", threads=2,
        peaks={"float32": PEAK}, libraries={"float32": "torch"},
        bandwidth=(BandwidthPoint(working_set=1_000_000_000, bytes_per_second=BANDWIDTH),),
    )  # fmt: skip


def size():
    elements = (WEIGHTS + 65_536_000) // 4
    return Size(
        parameters=elements, trainable=elements, buffers=0, parameter_bytes=4 * elements,
        buffer_bytes=0, by_dtype={"float32": DtypeSize(elements=elements, bytes=4 * elements)},
        disk_bytes=4 * elements, disk_source="its state dict's tensors (not written)",
    )  # fmt: skip


def generation(cells, **changes):
    """Return a record of some cells."""
    known = {"target": target(), "environment": records.environment(), "cells": tuple(cells)}
    return Generation(**{**known, **changes})


def single(**shape):
    """Return a record of one cell and nothing else."""
    return generation([cell(**shape)])


@functools.cache
def grid(slower=1.0):
    """Return two batches × two prompts with all parts; the largest ran out of memory."""
    cells = [
        cell(1, 128, slower=slower), cell(1, 1024, slower=slower), cell(4, 128, slower=slower),
        ended("out of memory", "The CPU has 16.0 GB, and 18.2 GB would be needed.", 4, 1024),
    ]  # fmt: skip
    return generation(
        cells,
        size=size(),
        roofs=roofs(),
        fits=fits(cells),
        predictions=(prediction(8, 128), prediction(8, 4096)),
        trees=(
            StageTree(stage="prefill", cell=1, cached=0, tree=tree(prefill_seconds(1, 1024))),
            StageTree(stage="decode", cell=1, cached=1038, tree=tree(step_seconds(1, 1038))),
        ),
        largest_batch=LargestBatch(
            context=1040, capacity=16_000_000_000, fixed=172_536_000,
            per_sequence=POSITION * 1040 + 2_000_000, largest=1505, done=1, failed=4,
        ),
        findings=(
            Finding(
                id="decode-bound-by-memory", severity="warning", time=step_seconds(1, 1038),
                title="Decode is bound by memory at 61 % of the bound",
                evidence="A step takes 9.41 ms and reads 115 MB at least, which takes 5.78 ms.",
                remedy="Weights of fewer bytes make it faster, or more prompts at once.",
            ),
        ),
        overhead=1.4e-6,
    )  # fmt: skip


def by_cache():
    """Return one shape with each kind of cache."""
    return generation(cell(2, 128, cache_kind=kind) for kind in ("dynamic", "static", "none"))


def assisted(accepted=(3, 1, 4, 2, 4)):
    """Return a watch of two calls with an assistant, whose forwards come before each step."""
    begin, clock = [1e-3], 1e-3 + prefill_seconds(1, 128) + gap_seconds(1)
    columns = {"duration": [prefill_seconds(1, 128)], "stage": ["prefill"], "tokens": [128],
               "cached": [0]}  # fmt: skip
    context = 128
    for added in accepted:
        steps = [("draft", 2e-3, 1, context + index) for index in range(4)]
        for stage, seconds, tokens, cached in (*steps, ("decode", 1.1e-2, 5, context)):
            begin.append(clock)
            row = (seconds, stage, tokens, cached)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
            clock += seconds + 4e-4
        context += added
    forwards = Forwards(
        begin=tuple(begin), sequences=(1,) * len(begin),
        **{name: tuple(column) for name, column in columns.items()},
    )  # fmt: skip
    watched_call = GenerationCall(
        by="generate", batch=1, sequences=1, prompt=128, new_tokens=1 + sum(accepted),
        duration=clock, forwards=forwards, cache=cache_size(1, context),
    )  # fmt: skip
    return generation(
        [of_calls((watched_call,) * 2)], assistant=target(name="Draft", spec=""), watched=True,
        overhead=1.6e-6,
    )  # fmt: skip


def without_times():
    """Return a record of an interrupted run: no cell has figures."""
    cells = [ended("interrupted", "Ctrl-C ended it."), ended("skipped", "It was not begun.", 4)]
    return generation(cells, interrupted=True)
