"""A training step's phases by torchgauge against the same step timed by hand, step by step."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import torchgauge as tg
from torchgauge.clock import SystemClock
from torchgauge.device.select import open_device
from torchgauge.measure.latency.latency import phased
from torchgauge.measure.step import prepared
from torchgauge.targets.builds.source import Source

PHASES = ("zero_grad", "forward", "loss", "backward", "optimizer")
Case = tuple[nn.Module, Any, Callable[[Any, Any], torch.Tensor]]


def by_hand(
    optimizer: torch.optim.Optimizer, call: Callable[[], Any], loss: Callable[..., torch.Tensor]
) -> dict[str, float]:
    """Return the seconds of one step's phases, by plain clock readings between them."""
    stamps = [time.perf_counter()]
    optimizer.zero_grad(set_to_none=True)
    stamps.append(time.perf_counter())
    outputs = call()
    stamps.append(time.perf_counter())
    value = loss(outputs, None)
    stamps.append(time.perf_counter())
    value.backward()
    del value
    stamps.append(time.perf_counter())
    optimizer.step()
    stamps.append(time.perf_counter())
    del outputs
    taken = {name: end - at for name, at, end in zip(PHASES, stamps, stamps[1:], strict=False)}
    return {**taken, "step": stamps[-1] - stamps[0]}


def cases() -> dict[str, Case]:
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


def alternate(case: Case, steps: int) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Return the phases of `steps` steps by hand and of as many by torchgauge, in turns.

    Both train the same model with the same optimizer in the same state.
    """
    model, inputs, loss = case
    train = tg.Training(loss, torch.optim.AdamW)
    placement = Source.of_object(model, inputs, training=True).open()
    hands: list[dict[str, float]] = []
    ours: list[dict[str, float]] = []
    with prepared(placement, train) as step:
        assert step.optimizer is not None
        given = placement.inputs
        timed = phased(step, SystemClock(), open_device("cpu"))

        def hand() -> None:
            hands.append(by_hand(step.optimizer, lambda: model(*given.args, **given.kwargs), loss))

        def own() -> None:
            timing = timed()
            taken = {name: part / 1e9 for name, part in timing.stages.items()}
            ours.append({**taken, "step": timing.total / 1e9})

        for number in range(steps + 2):
            for call in (hand, own) if number % 2 else (own, hand):
                call()
    return hands[2:], ours[2:]


def main() -> None:
    """Print both medians and their ratio for each phase, and how far all are from the step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    for name, case in cases().items():
        hands, ours = alternate(case, options.steps)
        for phase in (*PHASES, "step"):
            hand = statistics.median(one[phase] for one in hands)
            own = statistics.median(one[phase] for one in ours)
            fastest = min(one[phase] for one in ours) / min(one[phase] for one in hands)
            print(f"{name:10} {phase:10} {own * 1e3:9.3f} ms  by hand {hand * 1e3:9.3f} ms  "
                  f"ratio {own / hand:5.3f}, of the fastest {fastest:5.3f}")  # fmt: skip
        model, inputs, loss = case
        train = tg.Training(loss, torch.optim.AdamW)
        found = tg.profile(
            model, inputs, train=train, iterations=options.steps, progress=False
        ).training
        assert found is not None
        total = sum(phase.seconds for phase in found.phases)
        print(f"{name:10} a profile's phases: {total * 1e3:.3f} ms of a step of "
              f"{found.step * 1e3:.3f} ms, {abs(1 - total / found.step):.4%} apart")  # fmt: skip


if __name__ == "__main__":
    main()
