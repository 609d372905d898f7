"""Where a step's time goes on real models: the share of layers and of each bucket.

First how the tree compares with its bare steps and with the headline latency, by model and profile.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import torch

import torchgauge as tg
from small_models import SMALL
from torchgauge.measure.plan import opened
from torchgauge.measure.timeline import timeline
from torchgauge.records.timeline.tree import Tree
from torchgauge.targets.builds.source import Source
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import TargetRequest

INFERENCE = (
    "torchvision:resnet50",
    "hf:gpt2",
    "hf:mixtral?num_hidden_layers=2&hidden_size=256&intermediate_size=512",
    "hf:mamba?num_hidden_layers=8",
)
BERT = "hf:bert"
T5 = "hf:t5?d_model=512&d_kv=64&d_ff=2048&num_layers=6&num_decoder_layers=6&num_heads=8"


def mean_square(outputs: Any, _: Any) -> torch.Tensor:
    """Return a loss of any transformer's output."""
    return outputs.last_hidden_state.square().mean()


def trained(*, checkpointing: bool) -> Tree:
    """Return the tree of a training step of BERT-base with AdamW."""
    target = load(TargetRequest(BERT, device="cpu", training=True))
    model: Any = target.model
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    how = tg.Training(loss=mean_square, optimizer=functools.partial(torch.optim.AdamW, lr=1e-5))
    return timeline.measure(
        opened(Source.of_object(model, target.inputs, training=True)), train=how
    )


def say(name: str, tree: Tree) -> None:
    """Print shares, and what the passes cost."""
    root = tree.root
    whole = root.host_time or 1.0
    buckets = {one.name: one.host_time or 0.0 for one in root.children if one.kind == "bucket"}
    again = sum(row.host or 0 for row in tree.rows if row.phase == "recompute") * 1e-9
    parts = {"layers": whole - sum(buckets.values()), **buckets}
    if again:
        parts["(recomputed)"] = again
    shares = ", ".join(f"{part} {time / whole:.2%}" for part, time in parts.items())
    passes = ", ".join(
        f"{one.name} {f'{one.overhead:.3f}×' if one.overhead else 'not measurable'}"
        for one in tree.passes
    )
    residual = (tree.residual or 0.0) / (whole - (tree.residual or 0.0))
    print(f"{name}: {1e3 * whole:.1f} ms, residual {residual:+.2%}", flush=True)
    print(f"  {shares}\n  {passes}", flush=True)


def beside_headline(name: str, model: Any, inputs: Any, repeats: int) -> None:
    """Print how the tree's sum, its bare steps and the headline latency compare."""
    for _ in range(repeats):
        profile = tg.profile(model, inputs)
        tree, latency = profile.tree, profile.latency
        if tree is None or latency is None:
            raise SystemExit(f"{name} has no tree: {profile.warnings}")
        whole, bare = tree.root.host_time or 0.0, tree.passes[0].bare or 1.0
        said = ", ".join(warning.id for warning in tree.warnings) or "no warning"
        print(
            f"{name}: headline {1e3 * latency.median:.3f} ms; tree {whole / latency.median:.3f}×, "
            f"its bare steps {bare / latency.median:.3f}×; tree ÷ bare {whole / bare:.3f}; {said}",
            flush=True,
        )


def main() -> None:
    """Print one model after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    for name, made in SMALL.items():
        beside_headline(name, *made(), repeats)
    t5 = load(TargetRequest(T5, device="cpu"))
    beside_headline(T5, t5.model, t5.inputs, repeats)
    for spec in INFERENCE:
        say(spec, timeline.measure(opened(Source.of_request(TargetRequest(spec, device="cpu")))))
    say("BERT-base, AdamW", trained(checkpointing=False))
    say("BERT-base, AdamW, checkpointed", trained(checkpointing=True))


if __name__ == "__main__":
    main()
