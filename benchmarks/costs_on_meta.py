"""Costs of real models on meta tensors beside those on the CPU, operator by operator.

    python benchmarks/costs_on_meta.py [--every 3]

Products must be equal. Bytes differ where a GPU runs one kernel and the CPU several: recurrent
layers and cells, RMSNorm, dropout. A difference above 1 % without such a kernel is a fault.
"""

from __future__ import annotations

import argparse
from collections import Counter

import torch

import torchgauge as tg
from hygiene_models import candidates
from torchgauge.errors import TorchgaugeError

SHOWN = 4
FUSED = ("cuDNN", "fused")


def differences(real: tg.Cost, meta: tg.Cost) -> str:
    """Return the operators whose bytes differ most: on the CPU, then on meta."""
    ours, theirs = real.by_operator(), meta.by_operator()
    moved = {
        name: (ours[name].bytes if name in ours else 0, theirs[name].bytes if name in theirs else 0)
        for name in ours.keys() | theirs.keys()
    }
    largest = sorted(moved.items(), key=lambda item: -abs(item[1][0] - item[1][1]))[:SHOWN]
    return "; ".join(f"{name} {cpu:,} → {on_meta:,}" for name, (cpu, on_meta) in largest)


def main() -> None:
    """Print each model whose products or bytes differ, with its kernels and operators."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="count each n-th model alone")
    options = parser.parse_args()
    tally: Counter[str] = Counter()
    for candidate in list(candidates())[:: options.every]:
        try:
            target = candidate.make()
            model, inputs = target.model, target.inputs
            if not isinstance(model, torch.nn.Module):
                continue
            real = tg.count_cost(model, inputs)
            meta = tg.count_cost(model.to("meta"), inputs.map(lambda tensor: tensor.to("meta")))
        except (RuntimeError, ValueError, TorchgaugeError) as error:
            print(f"{candidate.name:34} does not run: {type(error).__name__}")
            continue
        if meta.counted_on != "meta":
            tally["counted on the CPU"] += 1
            continue
        tally["models"] += 1
        products_equal = real.matmul_flops == meta.matmul_flops
        near = abs(meta.bytes - real.bytes) <= 0.01 * real.bytes
        explained = any(name.startswith(FUSED) for name in meta.kernels)
        tally["bytes within 1 %" if near else "fused" if explained else "bytes differ"] += 1
        tally["products differ"] += not products_equal
        if not (products_equal and near):
            ratio = meta.bytes / max(1, real.bytes)
            print(f"{candidate.name:34} ×{ratio:.3f} {meta.kernels} {differences(real, meta)}")
    print(dict(tally))


if __name__ == "__main__":
    main()
