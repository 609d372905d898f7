"""What other tools say of the same generation: first token, time per token, cache.

    python benchmarks/generation_peers.py [ROUNDS]

By hand is `time.perf_counter` around each call of the model within `generate()`: the first token is
there when the second forward begins. optimum-benchmark's own tracker is run where that package is
installed (0.6.0, without what it depends on, but hydra-core, omegaconf, antlr4-python3-runtime,
flatten-dict and colorlog); it is a logits processor, which makes the call another one.
torch.profiler has neither stages nor tokens: its row is what its totals and its memory say. All run
in turn, in one process; medians over rounds.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from torchgauge.measure.generation.call_watch import CallWatch
from torchgauge.measure.generation.generation_options import GenerationOptions
from torchgauge.measure.generation.generator import generator

PROMPT, NEW_TOKENS, ROUNDS = 128, 32, 15
Times = dict[str, float]
COLUMNS = ("first token", "per token", "whole call", "cache")


def model() -> torch.nn.Module:
    """Return a small Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 8000}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval()


def ready(subject: torch.nn.Module, ids: torch.Tensor) -> Callable[..., Any]:
    """Return the call that generates; it takes further arguments of `generate()`."""
    options = GenerationOptions(new_tokens=NEW_TOKENS)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    generator(subject, None, options).ready(inputs, "dynamic")
    return lambda **further: subject.generate(**inputs, **further)


def by_hand(subject: torch.nn.Module, ids: torch.Tensor) -> Times:
    """Time the calls of the model; count the cache's tensors."""
    kind, begins, caches = type(subject), [], []
    call = kind.__call__

    def timed(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        begins.append(time.perf_counter())
        caches[:] = [kwargs["past_key_values"]]
        return call(self, *args, **kwargs)

    kind.__call__ = timed
    try:
        generate = ready(subject, ids)
        begin = time.perf_counter()
        generate()
        end = time.perf_counter()
    finally:
        del kind.__call__
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in caches[0].layers)
    per_token = (end - begins[1]) / (NEW_TOKENS - 1)
    return dict(zip(COLUMNS, (begins[1] - begin, per_token, end - begin, held), strict=True))


def ours(subject: torch.nn.Module, ids: torch.Tensor) -> Times:
    """Return what a watched call says."""
    generate = ready(subject, ids)
    with CallWatch(subject) as watch:
        generate()
    (record,) = watch.calls
    held = float("nan") if record.cache is None else record.cache.held
    values = (record.first_token, record.per_token, record.duration, held)
    return dict(zip(COLUMNS, values, strict=True))


def optimum(subject: torch.nn.Module, ids: torch.Tensor) -> Times:
    """Return what optimum-benchmark's tracker says of one call."""
    from optimum_benchmark.trackers.latency import PerTokenLatencySessionTrackerLogitsProcessor
    from transformers import LogitsProcessorList

    tracker = PerTokenLatencySessionTrackerLogitsProcessor(device="cpu", backend="pytorch")
    generate = ready(subject, ids)
    with tracker.session(), tracker.track():
        generate(logits_processor=LogitsProcessorList([tracker]))
    first = tracker.get_prefill_latency().mean
    per_token = tracker.get_per_token_latency().mean
    values = (first, per_token, tracker.get_generate_latency().mean, float("nan"))
    return dict(zip(COLUMNS, values, strict=True))


def profiler(subject: torch.nn.Module, ids: torch.Tensor) -> Times:
    """Return the totals of torch.profiler: the call under it, and memory of what made the cache."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    generate = ready(subject, ids)
    with torch.profiler.profile(activities=activities, profile_memory=True) as recorded:
        begin = time.perf_counter()
        generate()
        end = time.perf_counter()
    averages = recorded.key_averages()
    grown = sum(event.self_cpu_memory_usage for event in averages if event.key == "aten::cat")
    values = (float("nan"), float("nan"), end - begin, float(grown))
    return dict(zip(COLUMNS, values, strict=True))


def main() -> None:
    """Print each tool's medians, and their ratios to hand timing in the same round."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    torch.set_num_threads(1)
    tools = {"by hand": by_hand, "torchgauge": ours, "torch.profiler": profiler}
    if importlib.util.find_spec("optimum_benchmark") is not None:
        tools["optimum-benchmark"] = optimum
    subject, ids = model(), torch.randint(5, 900, (1, PROMPT))
    with torch.inference_mode():
        runs = [
            {name: tool(subject, ids) for name, tool in tools.items()} for _ in range(rounds + 1)
        ]
    print(f"{'':20}" + "".join(f"{column:>24}" for column in COLUMNS))
    for name in tools:
        cells = (cell(column, name, runs[1:]) for column in COLUMNS)
        print(f"{name:20}" + "".join(f"{text:>24}" for text in cells))


def cell(column: str, name: str, runs: list[dict[str, Times]]) -> str:
    """Return a median with its ratio to what was measured by hand."""
    value = statistics.median(run[name][column] for run in runs)
    if value != value:  # NaN: it does not say
        return "-"
    ratio = statistics.median(run[name][column] / run["by hand"][column] for run in runs)
    text = f"{value / 1e3:.1f} kB" if column == "cache" else f"{value * 1e3:.3f} ms"
    return f"{text} ({ratio:.3f})"


if __name__ == "__main__":
    main()
