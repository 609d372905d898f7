"""MACs of torchvision's classification models against what torchvision itself publishes."""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision import models

import torchgauge as tg

TOLERANCE = 0.01


def ours(model: nn.Module, image: torch.Tensor) -> float:
    """Count with torchgauge; MACs."""
    return tg.count_cost(model, image).macs


def flop_counter(model: nn.Module, image: torch.Tensor) -> float:
    """Count with torch's FlopCounterMode; MACs."""
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        model(image)
    return counter.get_total_flops() / 2


def fvcore(model: nn.Module, image: torch.Tensor) -> float:
    """Count with fvcore; MACs."""
    from fvcore.nn import FlopCountAnalysis

    analysis = FlopCountAnalysis(model, image)
    analysis.unsupported_ops_warnings(enabled=False).uncalled_modules_warnings(enabled=False)
    return float(analysis.total())


def thop(model: nn.Module, image: torch.Tensor) -> float:
    """Count with thop; MACs."""
    from thop import profile

    return float(profile(model, inputs=(image,), verbose=False)[0])


def ptflops(model: nn.Module, image: torch.Tensor) -> float:
    """Count with ptflops; MACs."""
    from ptflops import get_model_complexity_info

    shape = tuple(image.shape[1:])
    return float(
        get_model_complexity_info(
            model, shape, as_strings=False, print_per_layer_stat=False, verbose=False
        )[0]
    )


COUNTERS: dict[str, Callable[[nn.Module, torch.Tensor], float]] = {
    "torchgauge": ours,
    "FlopCounterMode": flop_counter,
    "fvcore": fvcore,
    "thop": thop,
    "ptflops": ptflops,
}


def published() -> dict[str, tuple[float, int]]:
    """Return name → (GMACs, image size) of the default weights of every classification model."""
    found = {}
    for name in models.list_models(module=models):
        weights = models.get_model_weights(name).DEFAULT
        size = weights.transforms.keywords["crop_size"]
        found[name] = (weights.meta["_ops"], size)
    return found


def built(name: str, size: int, device: str) -> nn.Module:
    """Build the model where it is counted; RegNet computes its widths with real tensors."""
    given = {"image_size": size} if name.startswith("vit_") else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.device(device):
                return models.get_model(name, **given).eval()
        except NotImplementedError:
            return models.get_model(name, **given).eval().to(device)


def main() -> None:
    """Print how many are within 1 % for each counter, and every miss of torchgauge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "meta"], default="meta")
    parser.add_argument("--counters", nargs="+", choices=list(COUNTERS), default=["torchgauge"])
    parser.add_argument("--most", type=float, default=float("inf"), help="GMACs of the largest")
    options = parser.parse_args()
    within: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    names: dict[str, Any] = published()
    chosen = {name: known for name, known in names.items() if known[0] <= options.most}
    for name, (gmacs, size) in chosen.items():
        image = torch.ones(1, 3, size, size, device=options.device)
        for counter in options.counters:
            model = built(name, size, options.device)
            try:
                macs = COUNTERS[counter](model, image)
            except Exception as error:  # noqa: BLE001 - a peer may raise anything
                failed[counter] += 1
                print(f"{name:28} {counter:16} raised {type(error).__name__}")
                continue
            off = macs / 1e9 / gmacs - 1
            # What is published is rounded to 0.001 GMAC.
            if abs(macs / 1e9 - gmacs) <= max(TOLERANCE * gmacs, 0.0005):
                within[counter] += 1
            else:
                said = f"{macs / 1e9:9.3f} GMAC, published {gmacs:9.3f}: {off:+.1%}"
                print(f"{name:28} {counter:16} {said}")
    for counter in options.counters:
        right = f"{within[counter]} of {len(chosen)}, failed {failed[counter]}"
        print(f"{counter:16} within 1 %: {right} ({options.device})")


if __name__ == "__main__":
    main()
