"""A training step's phases by torchgauge against the same step timed by hand, in turns."""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import torchgauge as tg

PHASES = ("forward", "loss", "backward", "optimizer")


def by_hand(
    model: nn.Module, call: Callable[[], Any], loss: Callable[[Any, Any], torch.Tensor], steps: int
) -> dict[str, float]:
    """Return the medians of `steps` steps with plain clock readings between the phases."""
    optimizer = torch.optim.AdamW(model.parameters())
    taken: dict[str, list[float]] = {name: [] for name in (*PHASES, "step")}
    for _ in range(steps + 2):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        stamps = [time.perf_counter()]
        outputs = call()
        stamps.append(time.perf_counter())
        value = loss(outputs, None)
        stamps.append(time.perf_counter())
        value.backward()
        stamps.append(time.perf_counter())
        optimizer.step()
        stamps.append(time.perf_counter())
        del outputs, value
        for name, begin, end in zip(PHASES, stamps, stamps[1:], strict=False):
            taken[name].append(end - begin)
        taken["step"].append(stamps[-1] - start)
    return {name: statistics.median(times[2:]) for name, times in taken.items()}


def cases() -> dict[str, tuple[nn.Module, Any, Callable[[Any, Any], torch.Tensor]]]:
    """Return the models with inputs and a loss."""
    from torchvision import models
    from transformers import BertConfig, BertForMaskedLM

    ids = torch.randint(0, 30522, (2, 64))
    return {
        "ResNet-18": (
            models.resnet18(), torch.randn(4, 3, 128, 128), lambda out, _: out.square().mean(),
        ),
        "BERT-base": (
            BertForMaskedLM(BertConfig()), {"input_ids": ids, "labels": ids},
            lambda out, _: out.loss,
        ),
    }  # fmt: skip


def main() -> None:
    """Print, for each model and phase, both medians and their ratio, over interleaved rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    for name, (model, inputs, loss) in cases().items():
        model.train()
        given = tg.Inputs(kwargs=inputs) if isinstance(inputs, dict) else tg.Inputs((inputs,))
        call = functools.partial(model, *given.args, **given.kwargs)
        hands, ours, apart = [], [], []
        train = tg.Training(loss, torch.optim.AdamW)
        for _ in range(options.rounds):
            hands.append(by_hand(model, call, loss, options.steps))
            # The caller's gradients would be kept alive meanwhile, and the optimizer's new memory
            # be harder to get: up to twice its time on BERT, by hand as well.
            model.zero_grad(set_to_none=True)
            profile = tg.measure_latency(
                model, inputs, train=train, warmup=2, iterations=options.steps, progress=False
            )
            stages = {stage.name: stage.median for stage in profile.stages}
            ours.append({**stages, "step": profile.median})
            apart.append(abs(sum(stages.values()) / profile.median - 1))
        for phase in (*PHASES, "step"):
            hand = statistics.median(one[phase] for one in hands)
            own = statistics.median(one[phase] for one in ours)
            print(f"{name:10} {phase:10} {own * 1e3:9.2f} ms  by hand {hand * 1e3:9.2f} ms  "
                  f"ratio {own / hand:5.3f}")  # fmt: skip
        print(f"{name:10} sum of the phases against the step: {max(apart):.2%} apart at most")


if __name__ == "__main__":
    main()
