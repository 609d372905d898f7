"""The time of counting, against torch's FlopCounterMode, in turns; and the memory it takes."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import psutil
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import torchgauge as tg


def llama_70b() -> tuple[nn.Module, Any]:
    """Return Llama-3-70B on meta, with 2,048 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128256, hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
        num_attention_heads=64, num_key_value_heads=8, max_position_embeddings=8192,
        rope_theta=500000.0,
    )  # fmt: skip
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    return model.to(torch.bfloat16).eval(), torch.ones(1, 2048, dtype=torch.int64, device="meta")


def tiny_layers() -> tuple[nn.Module, Any]:
    """Return 200 layers on the CPU that do next to nothing."""
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(200))).eval(), torch.ones(1, 8)


def peer(model: nn.Module, inputs: Any) -> int:
    """Count with torch's own counter, as its user would."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(inputs)
    return int(counter.get_total_flops())


def main() -> None:
    """Print the medians, their ratio, both totals and the memory at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    process = psutil.Process()
    cases: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
        "Llama-3-70B on meta": llama_70b,
        "200 tiny layers": tiny_layers,
    }
    for name, make in cases.items():
        model, inputs = make()
        taken: dict[str, list[float]] = {"ours": [], "peer": [], "plain": []}
        for number in range(options.rounds + 1):
            order: list[tuple[str, Callable[[nn.Module, Any], Any]]] = [
                ("ours", tg.count_cost),
                ("peer", peer),
                ("plain", plain),
            ]
            for which, call in order if number % 2 else order[::-1]:
                start = time.perf_counter()
                call(model, inputs)
                taken[which].append(time.perf_counter() - start)
        middle = {which: statistics.median(times[1:]) for which, times in taken.items()}
        cost = tg.count_cost(model, inputs)
        print(
            f"{name:20} torchgauge {middle['ours'] * 1e3:8.1f} ms  FlopCounterMode "
            f"{middle['peer'] * 1e3:8.1f} ms  ratio {middle['ours'] / middle['peer']:5.2f}  "
            f"(the call alone {middle['plain'] * 1e3:.1f} ms)"
        )
        print(
            f"{'':20} {cost.matmul_flops:,} against {peer(model, inputs):,} FLOPs; "
            f"{len(cost.nodes):,} layers, coverage {cost.coverage:.2%}, resident memory "
            f"{process.memory_info().rss / 1e6:,.0f} MB"
        )


def plain(model: nn.Module, inputs: Any) -> None:
    """Run the call with nothing attached."""
    with torch.no_grad():
        model(inputs)


if __name__ == "__main__":
    main()
