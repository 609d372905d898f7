"""FLOPs by layer call and phase from recorded events, beside the cost pass, as a Markdown table."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.layer_sums import by_layer

from torchgauge.analyze.timeline.attribution import NONE, PHASES, attribute
from torchgauge.analyze.timeline.call_tree import CallTree
from torchgauge.analyze.work.event_costs import EventCosts, event_costs
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.recording.recording import record
from torchgauge.measure.timeline.ranges import Ranges
from torchgauge.measure.work.cost import measure
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.work.cost import Cost
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.inputs.inputs import Inputs

MODES = ("inference", "no_grad", "training")
Key = tuple[tuple[str, ...], str]


class Sums(NamedTuple):
    """FLOP of one layer call path in one phase, and the calls of which nothing is known."""

    matmul: int = 0
    vector: int = 0
    unknown: int = 0


class Compared(NamedTuple):
    """Layer call paths and phases by outcome."""

    layers: int
    equal: int
    unknown: list[Key]
    differing: dict[Key, tuple[Sums, Sums]]
    costs: EventCosts
    cost: Cost


def compared(model: Callable[..., Any], inputs: Inputs, mode: str) -> Compared:
    """Count one call by both ways, and compare them layer by layer."""
    training = mode == "training"
    if isinstance(model, nn.Module):
        model.train(training)
    torch.manual_seed(0)
    cost = measure(model, inputs, backward=training)
    torch.manual_seed(0)
    counted, (recorded, costs) = _counted(cost), _recorded(model, inputs, mode)
    equal, unknown, differing = 0, [], {}
    for key in counted.keys() | recorded.keys():
        one, other = counted.get(key, Sums()), recorded.get(key, Sums())
        if one[:2] == other[:2] and not one.unknown + other.unknown:
            equal += 1
        elif one.unknown or other.unknown:
            unknown.append(key)
        else:
            differing[key] = one, other
    return Compared(len(counted.keys() | recorded.keys()), equal, unknown, differing, costs, cost)


def _counted(cost: Cost) -> dict[Key, Sums]:
    paths: list[tuple[str, ...]] = []
    for node in cost.nodes:
        paths.append((*(paths[node.parent] if node.parent >= 0 else ()), node.path))
    sums: dict[Key, Sums] = {}
    for row in cost.rows:
        before = sums.get(key := (paths[row.node], row.phase), Sums())
        fused = "attention" in row.operator  # as a recording counts it: the triangle, if causal
        products = row.causal_matmul_flops if fused else row.matmul_flops
        added = products, row.vector_flops, 0 if row.has_formula else row.calls
        sums[key] = Sums(*(a + b for a, b in zip(before, added, strict=True)))
    return sums


def _recorded(
    model: Callable[..., Any], inputs: Inputs, mode: str
) -> tuple[dict[Key, Sums], EventCosts]:
    modules = Modules(model)
    with Ranges(model, modules).marking():
        events = read_events(record(lambda: _step(model, inputs, mode), shapes=True))
    tree = CallTree(modules.table, modules.name)
    spans = attribute(events, tree)
    costs = event_costs(events, spans)
    paths: list[tuple[str, ...]] = []
    for layer in tree.layers:
        paths.append((*(paths[layer.parent] if layer.parent >= 0 else ()), layer.path))
    sums: dict[Key, Sums] = {}
    for (layer, phase), found in by_layer(costs, spans).items():
        # What runs in no layer is the callable's own.
        key = paths[max(layer, 0)], "forward" if layer == NONE else PHASES[phase]
        before = sums.get(key, Sums())
        added = found.matmul, found.vector, found.unknown
        sums[key] = Sums(*(a + b for a, b in zip(before, added, strict=True)))
    return sums, costs


def _step(model: Callable[..., Any], inputs: Inputs, mode: str) -> None:
    """Run what the cost pass runs: ones go into every differentiable output."""
    if mode != "training":
        with torch.inference_mode() if mode == "inference" else torch.no_grad():
            model(*inputs.args, **inputs.kwargs)
        return
    if isinstance(model, nn.Module):
        model.zero_grad()
    outputs = tensors_in(model(*inputs.args, **inputs.kwargs))
    results = [one for one in outputs if one.requires_grad]
    torch.autograd.backward(results, [torch.ones_like(one) for one in results])


class MixtureOfExperts(nn.Module):
    """Two of four experts for each token, those of the highest scores."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, width] to the same."""
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = (chosen == number).nonzero(as_tuple=True)
            result = result.index_add(0, rows, expert(x[rows]) * weights[rows, place, None])
        return result


class Recurrent(nn.Module):
    """An LSTM and a GRU, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, num_layers=2, bidirectional=True)
        self.gru = nn.GRU(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[steps, batch, 8] to [steps, batch, 8]."""
        return self.gru(self.lstm(x)[0])[0]


class Checkpointed(nn.Module):
    """Blocks that are run again in the backward pass; each ends in another operator."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        ends = [
            nn.ReLU(),
            nn.Tanh(),
            nn.LayerNorm(16),
            nn.GELU(),
            nn.Softmax(-1),
            nn.Linear(16, 16),
        ]
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), end) for end in ends)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, 16] to the same."""
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def _vision(name: str, size: int = 64, **options: Any) -> tuple[nn.Module, Inputs]:
    from torchvision import models

    return getattr(models, name)(**options), Inputs((torch.randn(2, 3, size, size),))


def _hugging(name: str, **options: Any) -> tuple[nn.Module, Inputs]:
    import transformers

    small = {"vocab_size": 100, "num_hidden_layers": 2, "hidden_size": 32,
             "num_attention_heads": 4, "intermediate_size": 64}  # fmt: skip
    config = getattr(transformers, f"{name}Config")(**(options or small))
    return getattr(transformers, f"{name}Model")(config), Inputs(
        (torch.randint(0, 100, (2, 12)),), {"use_cache": False} if name == "Mamba" else {}
    )


def _t5() -> tuple[nn.Module, Inputs]:
    model, inputs = _hugging("T5", vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2,
                             num_heads=4)  # fmt: skip
    return model, Inputs((), {"input_ids": inputs.args[0], "decoder_input_ids": inputs.args[0]})


def _whisper() -> tuple[nn.Module, Inputs]:
    model, _ = _hugging("Whisper", vocab_size=100, d_model=32, encoder_layers=2, decoder_layers=2,
                        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64,
                        decoder_ffn_dim=64, num_mel_bins=8, max_source_positions=20,
                        pad_token_id=0, bos_token_id=1, eos_token_id=2,
                        decoder_start_token_id=1)  # fmt: skip
    ids = torch.randint(0, 100, (2, 6))
    return model, Inputs((torch.randn(2, 8, 40),), {"decoder_input_ids": ids})


def _upward() -> tuple[nn.Module, Inputs]:
    model = nn.Sequential(
        nn.ConvTranspose2d(4, 8, 3, stride=2, groups=2),
        nn.GroupNorm(2, 8),
        nn.GLU(1),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.PReLU(4),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True),
        nn.MaxPool2d(2),
    )
    return model, Inputs((torch.randn(2, 4, 5, 5, requires_grad=True),))


def _encoder() -> tuple[nn.Module, Inputs]:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    return nn.TransformerEncoder(layer, 2), Inputs((torch.randn(2, 10, 32),))


def _checkpointed(reentrant: bool) -> tuple[nn.Module, Inputs]:
    return Checkpointed(reentrant), Inputs((torch.randn(4, 16, requires_grad=True),))


MODELS: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    "resnet18": lambda: _vision("resnet18"),
    "mobilenet_v2": lambda: _vision("mobilenet_v2"),
    "densenet121": lambda: _vision("densenet121"),
    "efficientnet_b0": lambda: _vision("efficientnet_b0"),
    "swin_t": lambda: _vision("swin_t"),
    "vit": lambda: _vision(
        "VisionTransformer", 32, image_size=32, patch_size=8, num_layers=2, num_heads=4,
        hidden_dim=32, mlp_dim=64,
    ),
    "bert": lambda: _hugging("Bert"),
    "gpt2": lambda: _hugging("GPT2", vocab_size=100, n_embd=32, n_layer=2, n_head=4),
    "llama": lambda: _hugging("Llama"),
    "mixtral": lambda: _hugging(
        "Mixtral", vocab_size=100, num_hidden_layers=2, hidden_size=32, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=64, num_local_experts=4,
    ),
    "t5": _t5,
    "whisper": _whisper,
    "mamba": lambda: _hugging(
        "Mamba", vocab_size=100, hidden_size=16, num_hidden_layers=2, state_size=4
    ),
    "recurrent": lambda: (Recurrent(), Inputs((torch.randn(5, 3, 8),))),
    "transformer encoder": _encoder,
    "mixture of experts": lambda: (MixtureOfExperts(), Inputs((torch.randn(12, 16),))),
    "transposed": _upward,
    "checkpointed": lambda: _checkpointed(False),
    "checkpointed, reentrant": lambda: _checkpointed(True),
}  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="instead of all")
    parser.add_argument("--show", action="store_true", help="what differs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| model | mode | layers × phases | equal | differing | unknown | FLOPs | known calls |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.models or MODELS:
        torch.manual_seed(0)
        model, inputs = MODELS[name]()
        for mode in MODES:
            found = compared(model, inputs, mode)
            flops = f"{found.cost.executed_flops:,}"
            cells = [name, mode, found.layers, found.equal, len(found.differing),
                     len(found.unknown), flops, f"{found.costs.coverage or 0:.2%}"]  # fmt: skip
            print("|", " | ".join(map(str, cells)), "|", flush=True)
            if options.show:
                for key, both in list(found.differing.items())[:12]:
                    print("   differs", *key, *both)
                for key in found.unknown[:6]:
                    print("   unknown", *key)
                for operator, (calls, reason) in found.costs.unknown.items():
                    print("   unknown", operator, calls, reason)
                print("   cost pass:", found.cost.unknown)


if __name__ == "__main__":
    main()
