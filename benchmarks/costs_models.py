"""Costs of real models against torch's FlopCounterMode: agree, differ and how, unknown, failed."""

from __future__ import annotations

import argparse
from collections import Counter

import torch
from torch.utils.flop_counter import FlopCounterMode

import torchgauge as tg
from hygiene_models import candidates
from torchgauge.errors import TorchgaugeError
from torchgauge.targets.target import Target


def peer(target: Target) -> int:
    """Count the forward with torch's own counter, in evaluation mode and without gradients."""
    model = target.model
    assert isinstance(model, torch.nn.Module)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.eval()(*target.inputs.args, **target.inputs.kwargs)
    return int(counter.get_total_flops())


def main() -> None:
    """Print each difference, every unknown operator, and the tally."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the names of the models to count")
    options = parser.parse_args()
    tally: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for candidate in candidates():
        if options.only not in candidate.name:
            continue
        try:
            target = candidate.make()
            theirs = peer(target)
        except (RuntimeError, ValueError, TorchgaugeError) as error:
            print(f"{candidate.name:40} does not run: {type(error).__name__}")
            continue
        tally["models"] += 1
        try:
            cost = tg.count_cost(target.model, target.inputs)
        except TorchgaugeError as error:
            tally["failed"] += 1
            print(f"{candidate.name:40} FAILED {error.message} {error.cause}"[:200])
            continue
        unknown.update(cost.unknown)
        tally["with unknown operators"] += cost.at_least
        if cost.matmul_flops == theirs:
            tally["agree"] += 1
        else:
            tally["differ"] += 1
            print(f"{candidate.name:40} {cost.matmul_flops:,} against {theirs:,}")
        tally[backward(candidate.name, target, cost.matmul_flops)] += 1
    print(dict(tally))
    print("unknown:", dict(unknown))


def backward(name: str, target: Target, forward: int) -> str:
    """Return whether the forward's work is the same when the backward pass is counted too."""
    try:
        both = tg.count_cost(target.model, target.inputs, backward=True)
    except TorchgaugeError as error:
        print(f"{name:40} backward: {error.message} {error.cause}"[:200])
        return "backward failed"
    once = both.total(["forward"]).matmul_flops
    if once != forward:
        print(f"{name:40} {once:,} forward in training, {forward:,} in evaluation")
        return "forward differs in training"
    return "forward the same in training"


if __name__ == "__main__":
    main()
