"""The models of the hygiene benchmark: real architectures made small, and some written here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from torchgauge.targets.builds.source import Source
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import Target, TargetRequest

TORCHVISION = (
    "resnet18", "resnet34", "alexnet", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_small",
    "mobilenet_v3_large", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "mnasnet0_5",
    "efficientnet_b0", "regnet_y_400mf", "regnet_x_400mf", "densenet121", "googlenet",
    "swin_t", "fcn_resnet50", "lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large",
    "convnext_tiny",
)  # fmt: skip
IMAGE = ("1x3x64x64",)
TIMM = (
    "resnet10t", "resnet14t", "mobilenetv3_small_050", "efficientnet_lite0", "ghostnet_050",
    "lcnet_050", "tinynet_e", "mnasnet_small", "hardcorenas_a", "regnetx_002", "regnety_002",
    "convnext_atto", "convnextv2_atto", "edgenext_xx_small", "mobilevit_xxs", "mobilevitv2_050",
    "fbnetc_100", "spnasnet_100", "dla46_c", "repvgg_a0", "repghostnet_050", "mobileone_s0",
    "res2net50_14w_8s", "cs3darknet_s", "nf_resnet26", "seresnext26t_32x4d", "skresnet18",
    "starnet_s1", "fasternet_t0", "semnasnet_075", "dpn48b", "selecsls42",
)  # fmt: skip
TIMM_FIXED = ("vit_tiny_patch16_224", "deit_tiny_patch16_224", "pvt_v2_b0", "poolformerv2_s12",
              "xcit_nano_12_p16_224", "levit_128s",
              "efficientformerv2_s0", "crossvit_9_240")  # fmt: skip
HUGGINGFACE = (
    "albert", "bart", "bert", "big_bird", "biogpt", "blenderbot-small", "bloom", "camembert",
    "codegen", "convbert", "ctrl", "deberta", "deberta-v2", "distilbert", "electra", "ernie",
    "falcon", "flaubert", "fnet", "gemma", "gemma2", "gpt2", "gpt_bigcode",
    "gpt_neox", "gptj", "granite", "ibert", "led", "llama", "longformer", "lxmert",
    "m2m_100",
    "mamba", "mamba2", "marian", "mbart", "megatron-bert", "mistral", "mixtral", "mobilebert",
    "modernbert", "mpnet", "mpt", "mt5", "mvp", "nystromformer", "olmo", "olmo2", "olmoe", "opt",
    "pegasus", "persimmon", "phi", "phi3", "phimoe", "plbart", "qwen2", "qwen2_moe", "qwen3",
    "qwen3_moe", "roberta", "roformer", "rwkv", "squeezebert", "stablelm", "starcoder2", "t5",
    "umt5", "vit", "deit", "beit", "dinov2", "convnext", "resnet", "segformer", "yolos",
    "whisper", "wav2vec2", "hubert", "xglm", "xlm-roberta", "xlnet", "yoso", "switch_transformers",
)  # fmt: skip
# Where a configuration has one of these, it is set so.
SMALL = {
    "vocab_size": 512, "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "n_embed": 64,
    "embedding_size": 64, "emb_dim": 64, "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2,
    "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "num_decoder_layers": 2,
    "num_attention_heads": 4, "num_heads": 4, "n_head": 4, "n_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "ffn_dim": 128, "d_ff": 128, "d_kv": 16, "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128, "d_inner": 128, "head_dim": 16, "num_experts": 8,
    "num_local_experts": 8, "moe_intermediate_size": 64, "rotary_dim": 8,
    "max_position_embeddings": 256, "n_positions": 256, "image_size": 64,
}  # fmt: skip
# Their padding token is near the end of the default vocabulary.
SPECIAL_TOKENS = ("marian", "modernbert", "phi3", "whisper")
SPELLED = {"mamba2": "hidden_size=64&num_heads=8&head_dim=16&num_hidden_layers=2&n_groups=1"}


class Recurrent(nn.Module):
    """An RNN of any kind with a head."""

    def __init__(self, kind: Callable[..., nn.Module], **options: Any) -> None:
        super().__init__()
        self.rnn = kind(16, 32, batch_first=True, **options)
        self.head = nn.Linear(64 if options.get("bidirectional") else 32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        return self.head(self.rnn(x)[0])


class Cells(nn.Module):
    """A cell stepped by hand, its state kept on the module from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        self.register_buffer("state", torch.zeros(2, 8))
        self.calls: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        self.calls.append(len(self.calls))
        self.state = self.state.detach()
        for step in range(x.shape[1]):
            self.state = self.cell(x[:, step], self.state)
        return self.state


class Detection(nn.Module):
    """Boxes, scores and labels in nested structures, as a detector returns them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU())
        self.boxes, self.scores = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 3, 1)

    def forward(self, images: list[torch.Tensor]) -> list[dict[str, Any]]:
        """Run it."""
        found = []
        for image in images:
            features = self.body(image[None])
            scores = self.scores(features).flatten(2).softmax(1).max(1)
            boxes = self.boxes(features).flatten(2)[0].T[scores.values[0] > 0.3]
            found.append({"boxes": boxes, "scores": scores.values, "labels": scores.indices})
        return found


class Experts(nn.Module):
    """A mixture of experts that counts in a buffer how often each is used."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.register_buffer("used", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        choice = self.router(x).argmax(-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = choice == index
            self.used[index] += rows.sum()
            out[rows] = expert(x[rows])
        return out


class Spectral(nn.Module):
    """Spectral and weight normalisation, whose training forwards write to buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.two = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        return self.two(self.one(x).relu())


class Renormalized(nn.Module):
    """Writes to its own weight and its input: an embedding with `max_norm`, clamped weights."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, 8, max_norm=0.5)
        self.linear = nn.Linear(8, 8)

    def forward(self, index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        self.linear.weight.data.clamp_(-0.1, 0.1)
        x.mul_(0.5)
        return self.linear(self.table(index) + x)


class Cached(nn.Module):
    """Extends a cache among its inputs, and writes to another one in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, cache: dict[str, Any]) -> torch.Tensor:
        """Run it."""
        y = self.linear(x)
        with torch.no_grad():
            cache["keys"] = torch.cat([cache["keys"], y], 1)
            cache["window"][:, len(cache["lengths"]) % 4] = y[:, 0]
        cache["lengths"].append(cache["keys"].shape[1])
        return torch.softmax(y @ cache["keys"].mT, -1) @ cache["keys"]


class StateSpace(nn.Module):
    """A diagonal state-space layer, by a scan."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.rand(8)) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        state, out = torch.zeros(8), []
        for u in x.unbind(1):
            state = state * self.a.sigmoid() + self.b * u
            out.append(state * self.c)
        return torch.stack(out, 1)


class Random(nn.Module):
    """Draws numbers in evaluation too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run it."""
        return self.linear(nn.functional.dropout(x, 0.5, training=True)) + torch.randn(8)


def _written() -> Iterator[tuple[str, Callable[[], nn.Module], Any]]:
    yield "GRUCell", Cells, torch.randn(2, 5, 8)
    yield "detection", Detection, ([torch.randn(3, 32, 32), torch.randn(3, 24, 32)],)
    yield "experts", Experts, torch.randn(6, 16)
    yield "spectral", Spectral, torch.randn(4, 8)
    yield "renormalized", Renormalized, (torch.arange(4), torch.randn(4, 8))
    cache = {"keys": torch.randn(2, 4, 8), "window": torch.zeros(2, 4, 8), "lengths": [4]}
    yield "cache", Cached, (torch.randn(2, 1, 8), cache)
    yield "state space", StateSpace, torch.randn(2, 10, 8)
    yield "random", Random, torch.randn(3, 8)
    layer = nn.TransformerEncoderLayer
    yield "encoder", lambda: nn.TransformerEncoder(layer(16, 2, 32), 2), torch.randn(5, 2, 16)
    sequence = (2, 12, 16)
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        for options in ({}, {"bidirectional": True}, {"num_layers": 2, "dropout": 0.2}):
            name = " ".join([kind.__name__, *options])
            yield name, lambda k=kind, o=options: Recurrent(k, **o), torch.randn(sequence)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A model by name, its family, and how it is made."""

    name: str
    family: str
    make: Callable[[], Target]


def candidates() -> Iterator[Candidate]:
    """Yield all models; those of libraries are loaded as torchgauge's own targets."""
    for name, make, inputs in _written():
        yield Candidate(name, "written", lambda m=make, i=inputs: _own(m(), i))
    for name in TORCHVISION:
        yield _requested(f"torchvision:{name}", IMAGE)
    for name in TIMM:
        yield _requested(f"timm:{name}", IMAGE)
    for name in TIMM_FIXED:
        yield _requested(f"timm:{name}", ())
    for name in HUGGINGFACE:
        yield Candidate(f"hf:{name}", "hf", lambda n=name: load(TargetRequest(_small(n), batch=1)))


def _own(model: nn.Module, inputs: Any) -> Target:
    return Source.of_object(model, inputs).open().target


def _requested(spec: str, inputs: tuple[str, ...]) -> Candidate:
    family = spec.partition(":")[0]
    return Candidate(spec, family, lambda: load(TargetRequest(spec, inputs=inputs, batch=1)))


def _small(name: str) -> str:
    from transformers import CONFIG_MAPPING

    if name in SPELLED:
        return f"hf:{name}?{SPELLED[name]}"
    config = CONFIG_MAPPING[name]()
    own = config.to_dict()
    known = [
        f"{key}={value}"
        for key, value in SMALL.items()
        if type(own.get(key)) is int
        and key not in config.attribute_map
        and not (key == "vocab_size" and name in SPECIAL_TOKENS)
    ]
    return f"hf:{name}?{'&'.join(known)}"
