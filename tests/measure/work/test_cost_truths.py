"""Work counted by hand: products, layers and passes, on real and on meta tensors."""

import pytest
import torch
from torch import nn

import torchgauge as tg


def meta(make):
    with torch.device("meta"):
        return make()


def image(size=224, device="meta"):
    return torch.ones(1, 3, size, size, device=device)


def hf(spec, **overrides):
    import transformers

    config = getattr(transformers, spec + "Config")(**overrides)
    return config, transformers


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "parameters", "macs", "both"),
    [
        ("resnet50", 25_557_032, 4_089_184_256, 24_299_077_632),
        ("mobilenet_v2", 3_504_872, 300_774_272, 1_782_969_600),
    ],
)
def test_convolutional_networks(name, parameters, macs, both):
    from torchvision import models

    model = meta(lambda: models.get_model(name))
    cost = tg.count_cost(model, image())
    assert cost.macs == macs
    assert cost.nodes[0].parameters == parameters
    assert not cost.unknown
    trained = tg.count_cost(model, image(), backward=True)
    assert trained.matmul_flops == both
    assert trained.total(["forward"]).macs == macs


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.slow
def test_vision_transformer_counts_its_attention(device):
    from torchvision import models

    with torch.device(device):
        model = models.vit_b_16()
    cost = tg.count_cost(model, image(device=device))
    assert cost.macs == 17_563_828_224
    assert not cost.unknown
    with torch.no_grad():
        assert tg.count_cost(model, image(device=device)).macs == 17_563_828_224
    trained = tg.count_cost(model.train(), image(device=device), backward=True)
    assert trained.total(["forward"]).macs == 17_563_828_224
    products = ("bmm", "attention")
    attention = sum(
        row.matmul_flops // 2
        for row in trained.rows
        if row.phase == "forward" and any(one in row.operator for one in products)
    )
    assert attention == 715_327_488


@pytest.mark.thorough
def test_gpt2():
    config, transformers = hf("GPT2")
    model = meta(lambda: transformers.GPT2LMHeadModel(config))
    cost = tg.count_cost(model, torch.ones(1, 1024, dtype=torch.int64, device="meta"))
    assert cost.macs == 145_824_153_600
    assert cost.nodes[0].parameters == 124_439_808


@pytest.mark.thorough
def test_llama_2_7b_on_meta():
    config, transformers = hf("Llama")
    model = meta(lambda: transformers.LlamaForCausalLM(config))
    cost = tg.count_cost(model, torch.ones(1, 2048, dtype=torch.int64, device="meta"))
    assert cost.nodes[0].parameters == 6_738_415_616
    assert cost.macs == 14_630_806_093_824
    full, causal = 1_099_511_627_776, 550_024_249_344
    assert cost.matmul_flops - cost.causal_matmul_flops == 2 * (full - causal)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_causal_attention_is_its_triangle_forward_and_backward(device):
    def attend(q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    q = torch.ones(2, 4, 8, 16, device=device, requires_grad=True)
    cost = tg.count_cost(attend, (q, q, q), backward=True)
    whole, exact = 2 * 4 * 8 * 8 * 32, 2 * 4 * 36 * 32
    for phase, times in (("forward", 1), ("backward", 2)):
        work = cost.total([phase])
        assert work.matmul_flops == 2 * times * whole
        assert work.causal_matmul_flops == 2 * times * exact
    fewer = torch.ones(2, 4, 4, 16, device=device)
    cost = tg.count_cost(attend, (fewer, q, q))
    assert cost.causal_matmul_flops == cost.matmul_flops == 2 * 2 * 4 * 4 * 8 * 32


def forward(module, *inputs):
    return tg.count_cost(module, inputs)


@pytest.mark.parametrize(("groups", "macs"), [(1, 10_800), (2, 5_400)])
def test_transposed_convolution(groups, macs):
    module = nn.ConvTranspose2d(4, 6, 3, stride=2, groups=groups)
    assert forward(module, torch.ones(2, 4, 5, 5)).macs == macs


@pytest.mark.parametrize("padding", [1, "same"])
def test_convolution_is_counted_dense(padding):
    assert forward(nn.Conv2d(8, 8, 3, padding=padding), torch.ones(1, 8, 6, 6)).macs == 20_736


def test_depthwise_convolution_backward_is_twice_its_forward():
    module = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False)
    x = torch.ones(2, 16, 8, 8, requires_grad=True)
    once = forward(module, x).matmul_flops
    assert once == 2 * 2 * 16 * 8 * 8 * 9
    assert tg.count_cost(module, x, backward=True).matmul_flops == 3 * once
    frozen = nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False).requires_grad_(False)
    assert tg.count_cost(frozen, x, backward=True).matmul_flops == 2 * once


def test_grouped_attention():
    q = torch.ones(1, 8, 16, 64)
    kv = torch.ones(1, 2, 16, 64)

    def attend(q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    assert forward(attend, q, kv, kv).macs == 262_144


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("backward", [False, True])
def test_recurrent_layers(kind, gates, backward):
    module = kind(8, 16, num_layers=2, bidirectional=True)
    macs = 5 * 3 * 2 * gates * 16 * ((8 + 16) + (32 + 16))
    cost = tg.count_cost(module, torch.ones(3, 5, 8), backward=backward)
    assert cost.total(["forward"]).macs == macs
    assert not cost.unknown
    if kind is nn.LSTM:
        assert macs == 138_240


def test_a_linear_layer_and_its_bias():
    assert forward(nn.Linear(512, 512), torch.ones(1, 512)).flops == 524_288
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    cost = forward(model, torch.ones(1, 4))
    assert [child.work.flops for child in cost.tree.children] == [24, 3, 12]


def test_embedding_gathers():
    cost = forward(nn.Embedding(1000, 16), torch.zeros(2, 5, dtype=torch.int64))
    assert cost.flops == 0
    assert cost.bytes == 10 * 16 * 4 + 10 * 8 + 10 * 16 * 4
    assert not cost.unknown


@pytest.mark.thorough
def test_native_fast_paths_of_attention_are_counted():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    x = torch.ones(2, 10, 64)
    macs = 2 * 10 * 64 * (4 * 64 + 2 * 128) + 2 * 2 * 10 * 10 * 64
    fast = forward(layer, x)
    assert any("_transformer_encoder_layer_fwd" in name for name in fast.by_operator())
    slow = tg.count_cost(layer, x, backward=True).total(["forward"])
    assert fast.macs == slow.macs == macs
    attention = nn.MultiheadAttention(64, 4, batch_first=True).eval()
    cost = tg.count_cost(attention, (x, x, x))
    assert cost.macs == 2 * 10 * 64 * 4 * 64 + 2 * 2 * 10 * 10 * 64


def test_unknown_operators_are_named_and_totals_say_at_least():
    with torch.library._scoped_library("tgtest", "FRAGMENT") as library:
        library.define("mystery(Tensor x) -> Tensor")
        library.impl("mystery", lambda x: x.clone(), "CPU")

        def call(x):
            return torch.ops.tgtest.mystery(torch.ops.tgtest.mystery(x)) @ x

        cost = forward(call, torch.ones(4, 4))
    assert cost.unknown == {"tgtest::mystery": 2}
    assert cost.at_least
    assert cost.macs == 64
    assert cost.coverage == pytest.approx(1 / 3)
