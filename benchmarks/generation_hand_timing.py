"""Stage times of `measure_generation` beside hand timing in the same process, in turn.

    python benchmarks/generation_hand_timing.py [ROUNDS]

By hand is `time.perf_counter` around each call of the model, within the same `generate()`. A round
is by hand, ours, by hand once more: the ratio of ours to the mean of both shows what watching adds,
that of the two by hand how far the machine lets them agree. The goal is 1 %. The last column is a
greedy loop of one's own, whose steps find the processor's caches warmer than `generate()` leaves
them. "At once" is ours over the time by hand around the same forwards, which no other work on the
machine disturbs.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchgauge.measure.generation.call_watch import CallWatch
from torchgauge.measure.generation.generation_options import GenerationOptions
from torchgauge.measure.generation.generator import generator

PROMPT, NEW_TOKENS, ROUNDS = 128, 24, 30
Times = dict[str, float]


def models() -> dict[str, Callable[[], torch.nn.Module]]:
    """Return small models, by name."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 8000}
    tiny = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, **heads}
    small = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, **heads}
    other = {"n_embd": 256, "n_layer": 4, "n_head": 8, "vocab_size": 8000}
    return {
        "Llama 64 wide, 2 layers": lambda: LlamaForCausalLM(LlamaConfig(**tiny)),
        "Llama 256 wide, 4 layers": lambda: LlamaForCausalLM(LlamaConfig(**small)),
        "GPT-2 256 wide, 4 layers": lambda: GPT2LMHeadModel(GPT2Config(**other)),
    }


@contextlib.contextmanager
def timed_by_hand(model: torch.nn.Module) -> Iterator[list[float]]:
    """Append the seconds of each call of the model until the block ends."""
    kind, times = type(model), list[float]()
    call = kind.__call__

    def timed(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        outputs = call(self, *args, **kwargs)
        times.append(time.perf_counter() - start)
        return outputs

    kind.__call__ = timed
    try:
        yield times
    finally:
        del kind.__call__


def by_hand(model: torch.nn.Module, ids: torch.Tensor) -> Times:
    """Time the calls of the model within `generate()`, in seconds."""
    call = ready(model, ids)
    with timed_by_hand(model) as times:
        call()
    return {"prefill": times[0], "step": statistics.median(times[1:])}


def at_once(model: torch.nn.Module, ids: torch.Tensor) -> Times:
    """Return ours over the time by hand around it, of the same forwards."""
    call = ready(model, ids)
    with timed_by_hand(model) as times, CallWatch(model) as watch:
        call()
    (record,) = watch.calls
    ratios = [ours / hand for ours, hand in zip(record.forwards.duration, times, strict=True)]
    return {"prefill": ratios[0], "step": statistics.median(ratios[1:])}


def own_loop(model: torch.nn.Module, ids: torch.Tensor) -> Times:
    """Time a greedy loop's prefill and its steps, in seconds."""
    from transformers import DynamicCache

    cache, tokens, times = DynamicCache(config=model.config), ids, []
    for position in range(NEW_TOKENS):
        length = ids.shape[1]
        begin = 0 if position == 0 else length + position - 1
        places = torch.arange(begin, length + position)[None]
        start = time.perf_counter()
        outputs = model(
            input_ids=tokens, position_ids=places, past_key_values=cache, use_cache=True,
            logits_to_keep=1, return_dict=True,
        )  # fmt: skip
        times.append(time.perf_counter() - start)
        tokens = outputs.logits[:, -1:].argmax(dim=-1)
    return {"prefill": times[0], "step": statistics.median(times[1:])}


def ready(model: torch.nn.Module, ids: torch.Tensor) -> Callable[[], object]:
    """Return the call that generates."""
    options = GenerationOptions(new_tokens=NEW_TOKENS)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return generator(model, None, options).ready(inputs, "dynamic")


def ours(model: torch.nn.Module, ids: torch.Tensor) -> Times:
    """Return what a watched call of `generate()` says."""
    call = ready(model, ids)
    with CallWatch(model) as watch:
        call()
    (record,) = watch.calls
    steps = [record.forwards.seconds(index) for index in record.forwards.indices("decode")]
    return {"prefill": record.prefill or 0.0, "step": statistics.median(steps)}


def main() -> None:
    """Print the ratios for each model and stage."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    torch.set_num_threads(1)
    columns = ("ours / hand", "hand / hand", "loop / hand", "at once")
    print(f"{'model':28}{'stage':10}{'by hand':>12}" + "".join(f"{name:>14}" for name in columns))
    for name, make in models().items():
        torch.manual_seed(0)
        model = make().eval()
        ids = torch.randint(5, 900, (1, PROMPT))
        order = (by_hand, ours, by_hand, own_loop, at_once)
        with torch.inference_mode():
            runs = [[measure(model, ids) for measure in order] for _ in range(rounds + 1)][1:]
        for stage in ("prefill", "step"):
            print_stage(name, stage, [[times[stage] for times in run] for run in runs])


def print_stage(name: str, stage: str, runs: list[list[float]]) -> None:
    """Print the medians over rounds of (by hand, ours, by hand, own loop, at once)."""
    hand = [(run[0] + run[2]) / 2 for run in runs]
    ratios = (
        [run[1] / mean for run, mean in zip(runs, hand, strict=True)],
        [run[2] / run[0] for run in runs],
        [run[3] / mean for run, mean in zip(runs, hand, strict=True)],
        [run[4] for run in runs],
    )
    medians = "".join(f"{statistics.median(values):14.4f}" for values in ratios)
    print(f"{name:28}{stage:10}{statistics.median(hand) * 1e3:9.3f} ms{medians}")


if __name__ == "__main__":
    main()
