"""Exports 40 models of torchvision, timm and transformers to ONNX, with what torch counts beside.

    python -m benchmarks.onnx_models --folder FOLDER [NAME …]

Each model is written by the dynamo exporter at its newest opset, and by the TorchScript exporter at
opsets 14 and 17, with the count of the torch model and its parameters in NAME.json. What is there
already is left. Weights are random; the transformers are small configurations. The dynamo exporter
needs onnxscript: `pip install onnxscript`.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import torchgauge as tg

# The files of a model: its exporter and opset.
EXPORTS = {"new": (True, None), "old17": (False, 17), "old14": (False, 14)}

TORCHVISION = (
    "resnet18 resnet50 mobilenet_v2 mobilenet_v3_small efficientnet_b0 densenet121 squeezenet1_0 "
    "shufflenet_v2_x1_0 mnasnet0_5 regnet_y_400mf convnext_tiny vit_b_32 swin_t googlenet"
)
TIMM = (
    "deit_tiny_patch16_224 mixer_s32_224 levit_128s convnextv2_atto ghostnet_100 poolformer_s12 "
    "edgenext_xx_small repvgg_a0 mobilenetv4_conv_small xcit_nano_12_p16_224 resmlp_12_224 "
    "cait_xxs24_224 mobilevit_xxs"
)
WIDTH, LAYERS, HEADS, LENGTH, VOCABULARY = 128, 3, 4, 64, 1000
COMMON = {"vocab_size": VOCABULARY, "attn_implementation": "eager"}
USUAL = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 4 * WIDTH,
}
DISTIL = {"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 4 * WIDTH}
T5 = {"d_model": WIDTH, "num_layers": LAYERS, "num_heads": HEADS, "d_kv": 32, "d_ff": 512}
CONFIGS: dict[str, dict[str, Any]] = {
    "BertModel": USUAL,
    "DistilBertModel": DISTIL,
    "RobertaModel": {**USUAL, "max_position_embeddings": 130},
    "AlbertModel": {**USUAL, "embedding_size": 64},
    "ElectraModel": {**USUAL, "embedding_size": 64},
    "MPNetModel": {**USUAL, "max_position_embeddings": 130},
    "GPT2Model": {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "use_cache": False},
    "LlamaModel": {**USUAL, "num_key_value_heads": 2, "use_cache": False},
    "Qwen2Model": {**USUAL, "num_key_value_heads": 2, "use_cache": False},
    "OPTModel": {**USUAL, "ffn_dim": 512, "word_embed_proj_dim": WIDTH, "use_cache": False},
    "T5EncoderModel": T5,
    "ViTModel": {**USUAL, "image_size": 64, "patch_size": 8},
    "DeiTModel": {**USUAL, "image_size": 64, "patch_size": 8},
}


def builders() -> dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]]:
    """Return by name what makes a model and its input."""
    made: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {}
    for name in TORCHVISION.split():
        made[f"torchvision-{name}"] = lambda name=name: _torchvision(name)
    for name in TIMM.split():
        made[f"timm-{name}"] = lambda name=name: _timm(name)
    for name in CONFIGS:
        made[f"transformers-{name}"] = lambda name=name: _transformers(name)
    return made


def _torchvision(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    from torchgauge.targets.loaders.importing_torchvision import import_torchvision

    more = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
    model = import_torchvision().models.get_model(name, weights=None, **more)
    return model.eval(), torch.randn(1, 3, 224, 224)


def _timm(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    import timm

    size = 256 if name.startswith(("mobilevit", "edgenext")) else 224
    return timm.create_model(name, pretrained=False).eval(), torch.randn(1, 3, size, size)


def _transformers(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    import transformers

    kind = getattr(transformers, name)
    model = kind(kind.config_class(**COMMON, **CONFIGS[name]), **_without_pooler(kind)).eval()
    if "image_size" in CONFIGS[name]:
        return model, torch.randn(1, 3, 64, 64)
    return model, torch.randint(0, VOCABULARY, (1, LENGTH))


def _without_pooler(kind: Any) -> dict[str, Any]:
    """Leave out what the first output does not need: exporters leave it out too."""
    pools = "add_pooling_layer" in inspect.signature(kind).parameters
    return {"add_pooling_layer": False} if pools else {}


class _Tensors(torch.nn.Module):
    """Gives a model's first output alone, as the TorchScript exporter wants it."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.causal = "use_cache" in CONFIGS[type(model).__name__]

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Call the model; a causal one with a mask, without which it looks for packed sequences."""
        more = {"attention_mask": torch.ones_like(value)} if self.causal else {}
        result = self.model(value, **more)
        return result if isinstance(result, torch.Tensor) else result[0]


def built(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a model and its input, the same in every process."""
    torch.manual_seed(0)
    model, value = builders()[name]()
    as_trained(model)
    return (_Tensors(model) if name.startswith("transformers") else model), value


def export(name: str, folder: Path) -> None:
    """Write the files of a model that are not there; what an exporter raises is printed."""
    model, value = built(name)
    truth = folder / f"{name}.json"
    if not truth.exists():
        truth.write_text(json.dumps(counted(model, value)))
    for kind, (dynamo, opset) in EXPORTS.items():
        path = folder / f"{name}.{kind}.onnx"
        if path.exists():
            continue
        start = time.perf_counter()
        try:
            torch.onnx.export(
                model, (value,), path, dynamo=dynamo, opset_version=opset, verbose=False,
                external_data=False, input_names=["x"],
            )  # fmt: skip
            result = f"{path.stat().st_size / 1e6:.1f} MB"
        except Exception as error:  # noqa: BLE001 - an exporter may raise anything
            result = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:120]}"
        print(f"{name} {kind}: {result} in {time.perf_counter() - start:.1f} s", flush=True)


def as_trained(model: torch.nn.Module) -> None:
    """Make equal parameters differ, as in trained models: exporters write equal ones once."""
    generator = torch.Generator().manual_seed(0)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            noise = 0.01 * torch.rand(tensor.shape, generator=generator)
            tensor.data += noise.to(tensor.dtype)


def counted(model: torch.nn.Module, value: torch.Tensor) -> dict[str, Any]:
    """Return what torchgauge counts of the torch model."""
    cost, size = tg.count_cost(model, value), tg.measure_size(model)
    operators = {
        name: (work.calls, work.matmul_flops, work.vector_flops)
        for name, work in cost.by_operator().items()
    }
    return {
        "flops": cost.flops,
        "matmul_flops": cost.matmul_flops,
        "vector_flops": cost.vector_flops,
        "bytes": cost.bytes,
        "parameters": size.parameters,
        "buffers": size.buffers,
        "operators": operators,
    }


def main() -> None:
    """Export what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("names", nargs="*", default=list(builders()))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for name in options.names:
        try:
            export(name, options.folder)
        except Exception as error:  # noqa: BLE001 - a model that a library no longer has
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
