"""Lower bounds beside times that others published: a bound that a real device beats is wrong."""

import pytest
import torch
from torch.nn import functional

import torchgauge as tg
from torchgauge.analyze.work.lower_bound import row_bounds, summed
from torchgauge.device.roofs.peaks import find

FA2 = "Dao, FlashAttention-2 (arXiv 2307.08691)"
FA3 = "Shah et al., FlashAttention-3 (arXiv 2407.08608)"
KORTHIKANTI = "Korthikanti et al., table 5 (arXiv 2205.05198)"
MEGATRON = "Shoeybi et al., Megatron-LM: one GPU, 1.2B, 39 TFLOP/s (arXiv 1909.08053)"


def seconds(model, inputs, device, *, backward=False):
    cost = tg.count_cost(model, inputs, backward=backward)
    assert not cost.at_least
    assert not any(name.startswith(("math", "efficient")) for name in cost.kernels)
    return summed(row_bounds(cost, find(device))).time


@pytest.mark.parametrize(
    ("device", "backward", "tera", "source"),
    [
        ("h100", False, 740, FA3),
        ("h100", True, 335, FA2),  # with the scores that backward computes once more: 3.5 forwards
        ("a100", False, 228, FA2),  # 73 % of the peak
    ],
)
@pytest.mark.parametrize("length", [2048, 16384])
def test_attention(device, backward, tera, source, length):
    shape = 16384 // length, 16, length, 128
    heads = tuple(
        torch.empty(shape, dtype=torch.float16, device="meta", requires_grad=backward)
        for _ in "qkv"
    )
    forward = 4 * shape[0] * 16 * length**2 * 128
    published = (3.5 if backward else 1) * forward / (tera * 1e12)
    bound = seconds(functional.scaled_dot_product_attention, heads, device, backward=backward)
    assert 0.25 * published < bound < published, source


def gpt(layers, width, heads, length, vocabulary, batch):
    import transformers

    config = transformers.GPT2Config(
        n_layer=layers, n_embd=width, n_head=heads, n_positions=length, vocab_size=vocabulary
    )
    with torch.device("meta"):
        return transformers.GPT2LMHeadModel(config).half(), ids(batch, length)


def llama(layers, width, wide, heads, key_heads, vocabulary, batch, length):
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=width, intermediate_size=wide, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=key_heads, vocab_size=vocabulary,
    )  # fmt: skip
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(config).bfloat16(), ids(batch, length)


def ids(batch, length):
    return tg.Inputs((), {"input_ids": torch.zeros(batch, length, dtype=torch.int64)})


def of_layers(make, layers, *sizes, device, backward):
    """The bound of a deep model, whose layers are alike, by those of one and two layers."""
    one, two = (seconds(*make(count, *sizes), device, backward=backward) for count in (1, 2))
    return one + (layers - 1) * (two - one)


def model_flops(layers, width, length, vocabulary, tokens):
    return tokens * (
        6 * (12 * layers * width**2 + vocabulary * width) + 12 * layers * width * length
    )


# Layers, width, heads, length, vocabulary, samples; seconds on one device of so many.
GPTS = [
    ("a100", (24, 2048, 16, 2048, 50257, 1), 196e12, 1, FA2),
    ("a100", (24, 2048, 16, 8192, 50257, 1), 220e12, 1, FA2),
    ("a100", (32, 2560, 20, 2048, 50257, 1), 205e12, 1, FA2),
    ("a100", (32, 2560, 20, 8192, 50257, 1), 225e12, 1, FA2),
    ("v100", (40, 1536, 16, 1024, 51200, 8), 39e12, 1, MEGATRON),
]
ITERATIONS = [
    ("a100", (48, 6144, 64, 2048, 51200, 4), 1.10, 8, KORTHIKANTI),
    ("a100", (96, 12288, 96, 2048, 51200, 64), 13.75, 64, KORTHIKANTI),
    ("a100", (105, 20480, 128, 2048, 51200, 280), 37.83, 280, KORTHIKANTI),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("device", "sizes", "rate", "devices", "source"), GPTS)
def test_training_at_a_published_rate(device, sizes, rate, devices, source):
    layers, width, _, length, vocabulary, batch = sizes
    published = model_flops(layers, width, length, vocabulary, batch * length) / rate
    bound = of_layers(gpt, *sizes, device=device, backward=True)
    assert 0.25 * published < bound < published, source


@pytest.mark.thorough
@pytest.mark.parametrize(("device", "sizes", "published", "devices", "source"), ITERATIONS)
def test_published_iterations(device, sizes, published, devices, source):
    bound = of_layers(gpt, *sizes[:5], 1, device=device, backward=True) * sizes[5] / devices
    assert 0.25 * published < bound < published, source


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("device", "sizes", "backward", "tokens_per_second", "source"),
    [
        # Weights are read once a token.
        ("a100", (32, 4096, 11008, 32, 32, 32000, 1, 1), False, 107.0,
         "PyTorch, Accelerating Generative AI with PyTorch II: Llama-7B, compiled, bfloat16"),
        ("h100", (32, 4096, 14336, 32, 8, 128256, 1, 8192), True, 6258,
         "Liang et al., TorchTitan, table 1: Llama 3.1 8B, FSDP on 8 GPUs (arXiv 2410.06511)"),
        ("a100", (80, 8192, 22016, 64, 64, 32000, 1, 2048), True, 380,
         "Touvron et al., LLaMA 65B on 2048 GPUs (arXiv 2302.13971)"),
    ],
)  # fmt: skip
def test_tokens_per_second(device, sizes, backward, tokens_per_second, source):
    published = sizes[-1] * sizes[-2] / tokens_per_second
    bound = of_layers(llama, *sizes, device=device, backward=backward)
    assert 0.25 * published < bound < published, source
