"""Records of generation made by hand for tests of the page; their times follow known lines.

A decode step of `batch` sequences at a context takes FIXED + PER_TOKEN × batch + PER_CONTEXT ×
batch × context seconds, its time between forwards with it, and a little that is drawn by a seed.
"""

import random

import msgspec
from tests.support import pages, records
from tests.support.generation_trees import trees

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.generation.fits import fits
from torchgauge.analyze.generation.predictions import predict
from torchgauge.records.generation.call import CacheSize, Forwards, GenerationCall
from torchgauge.records.generation.cell import GenerationCell, RepeatedTime, StageWork
from torchgauge.records.generation.generation import Generation, LargestBatch
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.target import TargetDescription

FIXED, PER_TOKEN, PER_CONTEXT = 34e-3, 0.35e-3, 5e-6
PREFILL_FIXED, PREFILL_TOKEN, PREFILL_CONTEXT = 36e-3, 0.30e-3, 0.11e-6
BETWEEN, NOISE = 0.9e-3, 0.012
BATCHES, PROMPTS, NEW = (1, 4, 16), (128, 512, 2048), 64
POSITION = 2 * 12 * 12 * 64 * 4  # bytes of a position: keys and values of 12 layers, 12 heads
WEIGHTS, BANDWIDTH, PEAK = 497_000_000, 18e9, 1.2e12


def step_seconds(batch, context):
    return FIXED + PER_TOKEN * batch + PER_CONTEXT * batch * context


def prefill_seconds(batch, prompt):
    tokens = batch * prompt
    return PREFILL_FIXED + PREFILL_TOKEN * tokens + PREFILL_CONTEXT * tokens * prompt / 2


def call(batch, prompt, new=NEW, *, seed=0, cache=None, beams=1, slow=1.0, **changes):
    """Return one call: a prefill, then decode steps with the time between them after each."""
    draw = random.Random(f"{seed} {batch} {prompt}")
    slow *= random.Random(f"{batch} {prompt}").gauss(1, NOISE)
    sequences = batch * beams
    begins, durations, cached = (
        [0.0004],
        [prefill_seconds(sequences, prompt) * slow * draw.gauss(1, NOISE / 2)],
        [0],
    )
    for step in range(new - 1):
        begins.append(begins[-1] + durations[-1] + BETWEEN * draw.uniform(0.8, 1.3))
        cached.append(prompt + step)
        seconds = step_seconds(sequences, prompt + step + 1) - BETWEEN
        durations.append(seconds * slow * draw.gauss(1, NOISE))
    forwards = Forwards(
        begin=tuple(begins),
        duration=tuple(durations),
        stage=("prefill", *("decode",) * (new - 1)),
        sequences=(sequences,) * new,
        tokens=(prompt, *(1,) * (new - 1)),
        cached=tuple(cached),
    )
    known = {
        "by": "generate", "batch": batch, "sequences": sequences, "prompt": prompt,
        "new_tokens": new, "duration": begins[-1] + durations[-1] + BETWEEN,
        "forwards": forwards, "cache": cache,
    }  # fmt: skip
    return GenerationCall(**{**known, **changes})


def cache_size(kind, sequences, prompt, new=NEW):
    """Return a cache after a call: a static one has memory for each token that was asked for."""
    used = POSITION * sequences * (prompt + new - 1)
    if kind == "none":
        return None
    if kind == "dynamic":
        return CacheSize(kind="DynamicCache", held=used, used=used, formula=used,
                         positions=prompt + new - 1, sequences=sequences,
                         elements={"float32": used})  # fmt: skip
    held = POSITION * sequences * 4096
    return CacheSize(kind="StaticCache", held=held, used=used, formula=used,
                     positions=prompt + new - 1, sequences=sequences, elements={"float32": held},
                     reason="A static cache has memory for 4,096 positions.")  # fmt: skip


def repeated(values, interval=True):
    """Return the median of several calls' values, with an interval from three on."""
    values = sorted(values)
    value = values[len(values) // 2]
    known = interval and len(values) >= 3
    return RepeatedTime(
        value=value,
        interval=Interval(low=value * 0.985, high=value * 1.017) if known else None,
        calls=len(values),
    )


def work(sequences, prompt, cell_seconds, stage, context):
    tokens = sequences * (prompt if stage == "prefill" else 1)
    flops, read = 2 * 124_000_000 * tokens, POSITION * sequences * context
    times = {"memory": (WEIGHTS + read + 9_000 * tokens) / BANDWIDTH, "compute": flops / PEAK}
    bound = max(times, key=times.get)
    return StageWork(
        stage=stage, cached=0 if stage == "prefill" else context, flops=flops, matmul_flops=flops,
        weight_bytes=WEIGHTS, cache_bytes=read, activation_bytes=9_000 * tokens,
        lower_bound=times[bound], bound=bound, reached=times[bound] / cell_seconds,
    )  # fmt: skip


def cell(batch, prompt, kind="dynamic", *, calls=4, warmup=1, new=NEW, beams=1, made=None,
         **changes):  # fmt: skip
    """Return a cell that was measured, its figures those of its calls."""
    sequences = batch * beams
    cache = cache_size(kind, sequences, prompt, new)
    slow = 1.0 if kind == "dynamic" else 1.06
    runs = made or tuple(
        call(batch, prompt, new, seed=f"{kind} {number}", cache=cache, beams=beams, slow=slow)
        for number in range(calls)
    )
    timed = runs[warmup:]
    steps = [run.decode / len(run.forwards.indices("decode")) for run in timed if run.decode]
    gaps = [run.gaps[index] for run in timed for index in run.forwards.indices("decode")]
    prefills = [run.prefill for run in timed]
    known = {
        "ttft": repeated([run.first_token for run in timed]),
        "tpot": repeated([run.per_token for run in timed]) if new > 1 else None,
        "end_to_end": repeated([run.duration for run in timed]),
        "prefill": repeated(prefills),
        "step": repeated(steps) if steps else None,
        "between": repeated(gaps, interval=len(timed) >= 3) if gaps else None,
        "tokens_per_second": repeated([batch * new / run.duration for run in timed]),
        "prefill_tokens_per_second": repeated([batch * prompt / run.prefill for run in timed]),
        "cache": cache,
        "memory": msgspec.structs.replace(
            records.memory(), peak=WEIGHTS + (0 if cache is None else cache.held) + 40_000_000
        ),
        "work": (
            work(sequences, prompt, prefills[0], "prefill", prompt),
            *(work(sequences, prompt, steps[0], "decode", prompt + at) for at in (1, new)
              if steps),
        ),
    }  # fmt: skip
    return GenerationCell(
        batch=batch, prompt=prompt, new_tokens=new, beams=beams, cache_kind=kind, calls=runs,
        warmup=warmup, **{**known, **changes},
    )  # fmt: skip


def ended(batch, prompt, kind, status, reason, error=""):
    """Return a cell without figures."""
    return GenerationCell(batch=batch, prompt=prompt, new_tokens=NEW, cache_kind=kind,
                          status=status, reason=reason, error=error)  # fmt: skip


def target(name="LlamaForCausalLM", **changes):
    known = {"spec": "hf:llama-160m", "kind": "transformers", "name": name, "device": "cpu",
             "precision": "fp32", "precision_method": "native"}  # fmt: skip
    return TargetDescription(**{**known, **changes})


def generation(cells=(), **changes):
    known = {"target": target(), "environment": records.environment(), "cells": tuple(cells),
             "size": records.profile().size}  # fmt: skip
    return Generation(**{**known, **changes})


def grid():
    """Three batches × three prompts, two caches; two cells have no figures, two are estimated."""
    cells = [cell(batch, prompt) for batch in BATCHES for prompt in PROMPTS]
    static = [cell(batch, prompt, "static") for batch in BATCHES for prompt in PROMPTS]
    static[-1] = ended(16, 2048, "static", "out of memory", "4.8 GB were requested, 3.1 GB free.")
    static[-2] = ended(16, 512, "static", "failed", "The model raised ValueError.", "ValueError")
    roofs = msgspec.structs.replace(pages.roofs(), source="measured", method="streams")
    record = generation(
        [*cells, *static], fits=fits([*cells, *static]), trees=trees(), roofs=roofs,
        overhead=1.4e-6,
        largest_batch=LargestBatch(context=2112, capacity=16_000_000_000, fixed=537_000_000,
                                   per_sequence=155_713_536, largest=99, done=16),
        warnings=(MeasurementWarning(id="drift", probe="generation",
                                     message="Batch 16 got 3 % slower over its calls."),),
    )  # fmt: skip
    shapes = [(8, 1024), (16, 4096)]
    predictions = tuple(
        predict(record, batch=batch, prompt=prompt, new_tokens=NEW, cache_kind="dynamic")
        for batch, prompt in shapes
    )
    return msgspec.structs.replace(record, predictions=predictions, findings=findings(record))


def watched():
    """One call of a program: no interval and no fit."""
    made = (call(1, 37, 24, cache=cache_size("dynamic", 1, 37, 24)),)
    return generation(
        [cell(1, 37, calls=1, warmup=0, new=24, made=made, work=(), memory=None)], watched=True
    )


def encoder_decoder():
    """An encoder's forward before the decoder's first, and a cache without a formula."""
    base = call(2, 1, 16)
    begin, encoder = base.forwards.begin, 0.021
    later = tuple(moment + encoder for moment in begin)
    forwards = msgspec.structs.replace(
        base.forwards, begin=(begin[0], *later), duration=(encoder, *base.forwards.duration),
        stage=("encoder", *base.forwards.stage), sequences=(2,) * 17,
        tokens=(1500, *base.forwards.tokens), cached=(0, *base.forwards.cached),
    )  # fmt: skip
    cache = CacheSize(kind="EncoderDecoderCache", held=9_400_000, used=9_400_000, positions=16,
                      sequences=2, elements={"float32": 9_400_000},
                      reason="No formula is known for this architecture.")  # fmt: skip
    made = msgspec.structs.replace(
        base, forwards=forwards, cache=cache, duration=base.duration + encoder
    )
    one = cell(2, 1, "EncoderDecoderCache", new=16, made=(made,) * 4, cache=cache)
    return generation([one], target=target("WhisperForConditionalGeneration", spec="hf:whisper"))


def assisted():
    """A draft model proposes three tokens a step; the target accepts two of them on average."""
    begins, durations, stages, tokens, cached = [0.0], [0.08], ["prefill"], [64], [0]
    clock, position = 0.082, 64
    for step in range(10):
        for _ in range(3):
            begins, durations = [*begins, clock], [*durations, 0.004]
            stages, tokens, cached = [*stages, "draft"], [*tokens, 1], [*cached, position]
            clock += 0.0044
        begins, durations = [*begins, clock], [*durations, 0.041]
        stages, tokens, cached = [*stages, "decode"], [*tokens, 4], [*cached, position]
        clock += 0.0425
        position += 2 + step % 3
    forwards = Forwards(
        begin=tuple(begins), duration=tuple(durations), stage=tuple(stages),
        sequences=(1,) * len(begins), tokens=tuple(tokens), cached=tuple(cached),
    )  # fmt: skip
    made = call(1, 64, position - 63, forwards=forwards, duration=clock)
    one = cell(1, 64, new=position - 63, made=(made,) * 4)
    return generation([one], assistant=target("LlamaForCausalLM", spec="hf:llama-68m"))
