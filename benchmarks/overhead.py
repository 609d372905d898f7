"""How much of the time of `tg.profile` is not spent in the model's own forward."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import torchgauge as tg

SHAPE = (1, 3, 224, 224)


def share_outside_forward(model: nn.Module, inputs: torch.Tensor) -> tuple[float, float]:
    """Return the seconds of one `tg.profile`, and the share of them outside of `forward`."""
    inside = 0.0
    forward: Callable[..., object] = model.forward

    def timed(*args: object, **kwargs: object) -> object:
        nonlocal inside
        start = time.perf_counter()
        try:
            return forward(*args, **kwargs)
        finally:
            inside += time.perf_counter() - start

    model.forward = timed
    start = time.perf_counter()
    tg.profile(model, inputs, progress=False)
    total = time.perf_counter() - start
    return total, 1 - inside / total


def main() -> None:
    """Print a line per model; the first profile of a process pays for imports: shown apart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=["resnet50", "resnet18"])
    options = parser.parse_args()
    from torchvision import models

    first = True
    for name in options.models:
        runs = [
            share_outside_forward(models.get_model(name).eval(), torch.randn(SHAPE))
            for _ in range(options.repeats + first)
        ]
        if first:
            print(f"{name:12} first profile {runs[0][0]:6.1f} s, outside forward {runs[0][1]:5.1%}")
            runs, first = runs[1:], False
        seconds = statistics.median(total for total, _ in runs)
        share = statistics.median(share for _, share in runs)
        print(f"{name:12} median of {len(runs)}   {seconds:6.1f} s, outside forward {share:5.1%}")


if __name__ == "__main__":
    main()
