"""Plans of continuous batching beside a real loop of it, with a small decoder in this process.

The fits of prefill and decode steps come from a record of `torchgauge generate`. The loop takes
requests by a Poisson schedule: between two iterations those that came join, their prompts are
computed together, and every running sequence makes a token. For each load it prints what requests
waited, and what the plan's simulation says of the same schedule.

    python benchmarks/capacity_tokens.py --seconds 15        # on a quiet machine, some 90 seconds
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

import torchgauge as tg
from torchgauge.analyze.capacity.service_times import service_times
from torchgauge.analyze.capacity.simulation import Workers
from torchgauge.analyze.capacity.token_model import TokenModel

Floats = npt.NDArray[np.float64]
Cache = list[tuple[torch.Tensor, torch.Tensor]]

WORDS, WIDTH, HEADS, BLOCKS = 1000, 256, 4, 4
PROMPT, ANSWER, MOST = 64, 32, 8
LOADS = (0.3, 0.6, 0.8, 0.9)


class Block(nn.Module):
    """Attention and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """Return query, key and value, each (N, heads, L, width of a head)."""
        return self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)

    def rest(self, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """Return the block's output for what attention made."""
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """A decoder without positions, whose cache grows or lies in slots."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(
        self, ids: torch.Tensor, past_key_values: Cache | None = None, use_cache: bool = True
    ) -> Any:
        """Return logits and the cache, for sequences of the same length."""
        del use_cache
        x, cache = self.tokens(ids), []
        for number, block in enumerate(self.blocks):
            query, key, value = block.heads(x)
            if past_key_values is not None:
                old_key, old_value = past_key_values[number]
                key, value = torch.cat((old_key, key), 2), torch.cat((old_value, value), 2)
            cache.append((key, value))
            causal = ids.shape[1] > 1
            x = block.rest(
                x, functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
            )
        return self.head(x[:, -1:]), cache

    def decode(self, ids: torch.Tensor, slots: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the next ids of the first sequences in `slots`, whose lengths differ."""
        count, longest = len(ids), int(lengths.max()) + 1
        rows = torch.arange(count)
        mask = (torch.arange(longest)[None] <= lengths[:, None])[:, None, None]
        x = self.tokens(ids[:, None])
        for number, block in enumerate(self.blocks):
            query, key, value = block.heads(x)
            slots[number, 0, rows, :, lengths] = key[:, :, 0]
            slots[number, 1, rows, :, lengths] = value[:, :, 0]
            keys, values = slots[number, :, :count, :, :longest]
            mixed = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
            x = block.rest(x, mixed)
        return self.head(x[:, 0]).argmax(-1)


class Served(NamedTuple):
    """When requests were due, their first tokens came, and their last."""

    due: Floats
    first: Floats
    last: Floats

    def figures(self) -> dict[str, float]:
        """Return what requests waited, in seconds."""
        ttft, latency = self.first - self.due, self.last - self.due
        tpot = (self.last - self.first) / (ANSWER - 1)
        return {
            "TTFT p50": float(np.quantile(ttft, 0.5)), "TTFT p95": float(np.quantile(ttft, 0.95)),
            "TPOT p50": float(np.quantile(tpot, 0.5)), "p50": float(np.quantile(latency, 0.5)),
            "p99": float(np.quantile(latency, 0.99)),
        }  # fmt: skip


@torch.inference_mode()
def serve(model: Decoder, due: Floats) -> Served:
    """Run the loop until all requests are answered."""
    slots = torch.zeros(BLOCKS, 2, MOST, HEADS, PROMPT + ANSWER, WIDTH // HEADS)
    prompts = torch.randint(WORDS, (len(due), PROMPT))
    first, last = np.zeros(len(due)), np.zeros(len(due))
    running: list[int] = []
    ids, lengths = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long)
    following, began = 0, time.perf_counter()
    while following < len(due) or running:
        now = time.perf_counter() - began
        if not running and due[following] > now:
            time.sleep(max(0.0, due[following] - now - 1e-4))
            continue
        joined = int(np.searchsorted(due, now, "right")) - following
        joined = min(joined, MOST - len(running))
        if running:
            ids, lengths = model.decode(ids, slots, lengths), lengths + 1
        if joined > 0:
            logits, cache = model(prompts[following : following + joined])
            places = slice(len(running), len(running) + joined)
            for number, pair in enumerate(cache):
                slots[number, 0, places, :, :PROMPT], slots[number, 1, places, :, :PROMPT] = pair
            ids = torch.cat((ids, logits[:, 0].argmax(-1)))
            lengths = torch.cat((lengths, torch.full((joined,), PROMPT)))
            running += range(following, following + joined)
            following += joined
        ended = time.perf_counter() - began
        first[[r for r in running if not first[r]]] = ended
        # A sequence of n positions beyond its prompt has made n + 1 tokens.
        going = lengths < PROMPT + ANSWER - 1
        last[[r for r, goes in zip(running, going.tolist(), strict=True) if not goes]] = ended
        if not bool(going.all()):
            slots[:, :, : int(going.sum())] = slots[:, :, : len(running)][:, :, going]
            running = [r for r, goes in zip(running, going.tolist(), strict=True) if goes]
            ids, lengths = ids[going], lengths[going]
    return Served(due, first, last)


def main() -> None:
    """Measure the fits, then the loop at each load, and print both."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=15.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Decoder().eval()
    generation = tg.measure_generation(
        model, prompt=(32, 64, 128), batch=(1, 2, 4, 8), new_tokens=ANSWER, trees=False,
        memory=False, roofs=False, budget=25.0,
    )  # fmt: skip
    made = TokenModel.from_times(service_times(generation), [(PROMPT, ANSWER)], 2048)
    workers = Workers(1, MOST)
    print(f"prefill {made.prefill}\ndecode {made.decode}\n{made.highest_rate(workers):.1f}/s")
    serve(model, np.zeros(2 * MOST))
    for load in LOADS:
        rate = load * made.highest_rate(workers)
        random = np.random.default_rng(int(100 * load))
        due = np.cumsum(random.exponential(1 / rate, int(rate * arguments.seconds)))
        outcome = made.run(due, workers, 0)
        # What a loop in this process has no share of: the way to `generate` and back.
        predicted = Served(
            due, due + outcome.ttft - made.overhead, due + outcome.latency - made.overhead
        ).figures()
        measured = serve(model, due).figures()
        cells = [
            f"{name} {1e3 * value:.1f} ms {100 * (predicted[name] / value - 1):+.0f} %"
            for name, value in measured.items()
        ]
        print(f"load {load:4} {len(due):5} requests: " + ", ".join(cells), flush=True)


if __name__ == "__main__":
    main()
