"""Calls of a language model made by hand, whose times are known."""

import msgspec

from torchgauge.records.generation.call import CacheSize, Forwards, GenerationCall

DYNAMIC = CacheSize(kind="DynamicCache", held=4096, used=4096, formula=4096)


def call(
    prompt=100,
    steps=(0.01, 0.01, 0.01),
    *,
    prefill=0.1,
    gap=0.002,
    gaps=None,
    setup=0.003,
    batch=1,
    beams=1,
    cache=DYNAMIC,
    **parts,
):
    """A call whose decode forwards take `steps` seconds, with a gap after each forward.

    Without a cache each computes the whole sequence. `gaps` are those after the prefill and after
    each step, where they are not all `gap`.
    """
    durations = (prefill, *steps)
    gaps = (gap,) * len(durations) if gaps is None else gaps
    begins, at = [], setup
    for duration, after in zip(durations, gaps, strict=True):
        begins.append(at)
        at += duration + after
    computed = range(1, len(steps) + 1)
    return GenerationCall(
        **{
            "by": "generate",
            "batch": batch,
            "sequences": batch * beams,
            "prompt": prompt,
            "new_tokens": len(steps) + 1,
            "duration": at,
            "forwards": Forwards(
                begin=tuple(begins),
                duration=durations,
                stage=("prefill", *["decode"] * len(steps)),
                sequences=(batch * beams,) * len(durations),
                tokens=(prompt, *((1 if cache else prompt + index) for index in computed)),
                cached=(0, *((prompt + index - 1 if cache else 0) for index in computed)),
            ),
            "cache": cache,
            **parts,
        }
    )


def cut(original, forwards, **parts):
    """The call that ended with an exception after so many forwards."""
    columns = {
        name: getattr(original.forwards, name)[:forwards] for name in Forwards.__struct_fields__
    }
    return msgspec.structs.replace(
        original, forwards=Forwards(**columns), **({"error": "RuntimeError"} | parts)
    )


def assisted(rounds, *, prompt=100, step=0.03, draft=0.005, drafts=4, gap=0.001, cache=DYNAMIC):
    """A call in which each of `rounds` adds so many tokens, after `drafts` of the assistant."""
    rows, at, cached = [(0.0, 0.1, "prefill", prompt, 0)], 0.1 + gap, prompt
    for added in rounds:
        for _ in range(drafts):
            rows.append((at, draft, "draft", 1, cached))
            at += draft + gap
        rows.append((at, step, "decode", drafts + 1, cached))
        at += step + gap
        cached += added
    begin, duration, stage, tokens, cached_before = zip(*rows, strict=True)
    return GenerationCall(
        by="generate",
        batch=1,
        sequences=1,
        prompt=prompt,
        new_tokens=1 + sum(rounds),
        duration=at,
        forwards=Forwards(
            begin=begin,
            duration=duration,
            stage=stage,
            sequences=(1,) * len(rows),
            tokens=tokens,
            cached=cached_before,
        ),
        cache=cache,
    )
