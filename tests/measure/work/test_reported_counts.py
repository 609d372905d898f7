"""Faults of counters that people reported in public, each with its own model and right value.

The values are computed by hand; a bias within a product is not counted, 1 MAC is 2 FLOP.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torchgauge as tg

pytestmark = pytest.mark.thorough

REPORTS = []


def report(place, fault, expected):
    """Add a function that returns what was counted, with where the fault was reported."""

    def add(function):
        REPORTS.append(pytest.param(function, expected, id=f"{place} {fault}"))
        return function

    return add


class Call(nn.Module):
    """A model whose forward is a function of itself and its inputs."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def counted(model, *inputs, **options):
    return tg.count_cost(model, tg.Inputs(inputs), **options)


def macs(model, *inputs, **options):
    return counted(model, *inputs, **options).macs


def macs_of(function, *inputs):
    return macs(Call(lambda _, *values: function(*values)), *inputs)


def heads(length=64, batch=1, count=12, width=64):
    return [torch.randn(batch, count, length, width) for _ in range(3)]


@report("pytorch#195460", "attention on the CPU is 0", 12_582_912)
def _():
    cost = counted(Call(lambda _, *qkv: F.scaled_dot_product_attention(*qkv)), *heads())
    return cost.matmul_flops


@report("pytorch#134804", "attention counts twice", 2 * 2 * 2 * 5 * 9 * 9 * 4)
def _():
    cost = counted(Call(lambda _, *qkv: F.scaled_dot_product_attention(*qkv)), *heads(9, 2, 5, 4))
    return cost.matmul_flops


@report("calculate-flops#48", "a transformer is linear in its length", 4.0)
def _():
    short, long = (macs_of(F.scaled_dot_product_attention, *heads(n)) for n in (16, 32))
    return long / short


@report("pytorch-OpCounter#197", "nn.MultiheadAttention is 0", 240_000_000)
def _():
    x = torch.ones(1, 1000, 100)
    return macs(nn.MultiheadAttention(100, 1, batch_first=True), x, x, x)


@report("flops-counter#65", "nn.MultiheadAttention is 0", 4 * 580 * 512**2 + 2 * 580**2 * 512)
def _():
    x = torch.randn(580, 1, 512)
    return macs(nn.MultiheadAttention(512, 4).eval(), x, x, x)


@report("olmoearth_pretrain#605", "the encoder's fast path is 0", 294_912)
def _():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    with torch.no_grad():
        return macs(layer, torch.randn(2, 16, 32))


@report("FastBERT#14", "products of an attention of one's own are left out", 2 * 4 * 16 * 16 * 8)
def _():
    def attention(q, k, v):
        return torch.matmul(torch.matmul(q, k.transpose(-2, -1)).softmax(-1), v)

    return macs_of(attention, *heads(16, 1, 4, 8))


@report("fvcore#98", "nn.LSTM is 0", 5 * 3 * 4 * 20 * 30)
def _():
    return macs(nn.LSTM(10, 20, 1), torch.randn(5, 3, 10))


@report("fvcore#98", "and nn.LSTMCell is not", 5 * 3 * 4 * 20 * 30)
def _():
    def steps(model, x):
        state = None
        for row in x:
            state = model.cell(row, state)
        return state[0]

    return macs(Call(steps, cell=nn.LSTMCell(10, 20)), torch.randn(5, 3, 10))


@report("torchinfo#32", "an LSTM does not depend on its length", 377_036_800)
def _():
    def forward(model, x):
        return model.decoder(model.encoder(model.embedding(x))[0])

    model = Call(
        forward,
        embedding=nn.Embedding(20, 300),
        encoder=nn.LSTM(300, 512, num_layers=2, batch_first=True),
        decoder=nn.Linear(512, 20),
    )
    return macs(model, torch.zeros(1, 100, dtype=torch.long))


@report("torchinfo#72", "a convolution is wrong", 3 * 8 * 9 * 16 * 16)
def _():
    return macs(nn.Conv2d(3, 8, 3, padding=1), torch.randn(1, 3, 16, 16))


@report("torchinfo#14", "a linear layer", 524_288)
def _():
    return macs(nn.Linear(1024, 512), torch.randn(1, 1024))


@report("torchinfo#39", "a container counts beside its layers", 1_013_760)
def _():
    return macs(
        nn.Sequential(*(nn.Conv2d(16, 16, 3) for _ in range(3))), torch.randn(1, 16, 16, 16)
    )


@report("pytorch-OpCounter#8", "a stride is divided by twice", 8 * 8 * 3 * 8 * 9)
def _():
    return macs(nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.randn(1, 3, 16, 16))


@report("pytorch-OpCounter#41", "a depthwise convolution counts as a dense one", 18_432)
def _():
    return macs(nn.Conv2d(8, 8, 3, groups=8, padding=1), torch.randn(1, 8, 16, 16))


@report("pytorch-OpCounter#20", "a transposed convolution is too large", 10_800)
def _():
    return macs(nn.ConvTranspose2d(4, 6, 3, stride=2), torch.randn(2, 4, 5, 5))


@report("fvcore#78", "a transposed convolution is by its output's channels squared", 288)
def _():
    return macs(nn.ConvTranspose2d(32, 1, 3), torch.randn(1, 32, 1, 1))


@report("flops-counter#149", "a transposed convolution is by its output", 48)
def _():
    return macs(nn.ConvTranspose2d(3, 1, 2, stride=2), torch.randn(1, 3, 2, 2))


@report("DeepSpeed#8323", "grouped transposed convolutions are 0", [49_152, 4_608, 6_144])
def _():
    layers = (
        nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1),
        nn.ConvTranspose2d(4, 4, 3, stride=2, padding=1, output_padding=1, groups=4),
        nn.ConvTranspose2d(6, 6, 2, stride=2, groups=3),
    )
    return [macs(layer, torch.randn(2, layer.in_channels, 8, 8)) for layer in layers]


@report("pytorch#119806", "backward of a transposed convolution is 2,880 times its forward", 46_080)
def _():
    model = nn.ConvTranspose2d(4, 8, 2, stride=2)
    return macs(model, torch.randn(6, 4, 5, 6), backward=True)


@report("pytorch#183405", "its gradient of grouped weights is dense", 23_040)
def _():
    model = nn.ConvTranspose2d(4, 8, 2, stride=2, groups=2)
    return macs(model, torch.randn(6, 4, 5, 6), backward=True)


@report("flops-counter#59", "EfficientNet calls F.conv2d", 3 * 8 * 9 * 14 * 14)
def _():
    weight = torch.randn(8, 3, 3, 3)
    return macs_of(lambda x: F.conv2d(x, weight), torch.randn(1, 3, 16, 16))


@report("calculate-flops#35", "operators are not counted", [4 * 8 * 5, 4 * 5])
def _():
    cost = counted(Call(lambda _, a, b, c: a @ b + c), *map(torch.randn, ((4, 8), (8, 5), (4, 5))))
    return [cost.macs, cost.vector_flops]


@report("flops-counter#78", "torch.bmm is 0", [60, 60])
def _():
    a, b = torch.randn(1, 3, 4), torch.randn(1, 4, 5)
    return [macs_of(torch.bmm, a, b), macs_of(torch.matmul, a, b)]


@report("fvcore#117", "baddbmm is 0", 2 * 3 * 4 * 5)
def _():
    return macs_of(torch.baddbmm, torch.randn(2, 3, 5), torch.randn(2, 3, 4), torch.randn(2, 4, 5))


@report("pytorch#98247", "baddbmm with keywords fails", 2 * 3 * 4 * 5)
def _():
    def scaled(out, a, b):
        return torch.baddbmm(out, a, b, beta=0.5, alpha=2.0)

    return macs_of(scaled, torch.randn(2, 3, 5), torch.randn(2, 3, 4), torch.randn(2, 4, 5))


@report("pytorch-benchmark#2383", "a product with out= fails", 4 * 5 * 6)
def _():
    def product(a, b):
        return torch.mm(a, b, out=torch.empty(4, 6))

    return macs_of(product, torch.randn(4, 5), torch.randn(5, 6))


@report("DeepSpeed#1949", "nn.Conv1d is negative", 1_536_000_000)
def _():
    return macs(nn.Conv1d(1000, 1000, 3, padding=1), torch.randn(1, 1000, 512))


class Parent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


@report("DeepSpeed#7256", "a layer of three parents counts nine times", 30_000)
def _():
    def split(model, x):
        a, b, c = x.split(100, dim=1)
        return torch.cat([model.a(a), model.b(b), model.c(c)], 1)

    layer = nn.Linear(100, 100)
    return macs(Call(split, **{name: Parent(layer) for name in "abc"}), torch.randn(1, 300))


@report("flops-counter#106", "a layer that is passed on counts four times", 40_000_000)
def _():
    def forward(model, x):
        return model.block(model.layer(x))

    layer = nn.Linear(1000, 1000)
    return macs(Call(forward, layer=layer, block=Parent(layer)), torch.randn(20, 1000))


@report("flops-counter#98", "a network that is called twice", [2, 256])
def _():
    layer = nn.Linear(8, 8)
    cost = counted(
        Call(lambda model, x: model.layer(model.layer(x)), layer=layer), torch.ones(2, 8)
    )
    return [sum(node.calls for node in cost.nodes if node.path == "layer"), cost.macs]


@report("DeepSpeed#2292", "each count is larger than the last", 1)
def _():
    model, x = nn.Linear(8, 8), torch.randn(2, 8)
    return len({macs(model, x) for _ in range(3)})


@report("pytorch#69782", "the backward pass is not counted", [900, 2_100])
def _():
    model, x = nn.Sequential(nn.Linear(10, 20), nn.Linear(20, 5)), torch.randn(3, 10)
    return [macs(model, x), macs(model, x, backward=True)]


@report("pytorch#126268", "in inference mode all is 0", 64)
def _():
    @torch.inference_mode()
    def forward(model, x):
        return model.layer(x)

    return macs(Call(forward, layer=nn.Linear(8, 4)), torch.randn(2, 8))


def compiled(model):
    return torch.compile(model, backend="eager")


@report("pytorch#128199", "a compiled model fails", 2 * 32 * 64 * 4)
def _():
    model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 32), nn.LayerNorm(32))
    return macs(compiled(model), torch.randn(4, 32))


@report("flops-counter#110", "a compiled model counts three times", 1_000_000)
def _():
    return macs(compiled(nn.Linear(1000, 1000, bias=False)), torch.randn(1, 1000))


@report("DeepSpeed#3362", "recomputation is not counted", [2_400, 400])
def _():
    def forward(model, x):
        return checkpoint(model.layers, x, use_reentrant=False)

    layers = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10))
    cost = counted(
        Call(forward, layers=layers), torch.randn(2, 10, requires_grad=True), backward=True
    )
    return [cost.matmul_flops, cost.executed_flops - cost.flops]


@report("fvcore#69", "a flop is a MAC", 2)
def _():
    cost = counted(nn.Linear(8, 4), torch.randn(2, 8))
    return cost.matmul_flops / cost.macs


@report("fvcore#143", "multiplications and additions have no formula", [200, False])
def _():
    cost = counted(Call(lambda _, x, y: x * y + x), torch.randn(100), torch.randn(100))
    return [cost.vector_flops, cost.at_least]


@report("pytorch-OpCounter#166", "is a ReLU one operation?", 100)
def _():
    return counted(nn.ReLU(), torch.randn(100)).vector_flops


@report("voxceleb_trainer#105", "spectrograms are nothing", True)
def _():
    def spectrogram(_, x):
        return torch.stft(x, 64, window=torch.ones(64), return_complex=True).abs()

    return counted(Call(spectrogram), torch.randn(1, 640)).vector_flops > 0


@report("flops-counter#119", "F.interpolate fails", [False, True])
def _():
    cost = counted(
        Call(lambda _, x: F.interpolate(x, scale_factor=2, mode="bilinear")), torch.ones(1, 3, 8, 8)
    )
    return [cost.at_least, cost.vector_flops > 0]


@report("mmcv#897", "norms are nothing", True)
def _():
    norms = (nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.LayerNorm(8))
    return all(counted(norm, torch.randn(2, 4, 8, 8)).vector_flops >= 2 * 512 for norm in norms)


@report("VMamba#170", "a kernel in Python is nothing, silently", [64, True])
def _():
    operator = torch.library.custom_op(
        "torchgauge_reports::scan",
        lambda x: x.cumsum(0),
        mutates_args=(),
        schema="(Tensor x) -> Tensor",
    )
    operator.register_fake(torch.empty_like)
    cost = counted(
        Call(lambda model, x: operator(model.layer(x)), layer=nn.Linear(8, 4)), torch.randn(2, 8)
    )
    return [cost.macs, cost.at_least]


@report("fvcore#132", "one sample of a batch norm in training", 0)
def _():
    return macs(nn.BatchNorm2d(3).train(), torch.randn(2, 3, 1, 1))


@report("fvcore#76", "the whole is less than its modules", True)
def _():
    model = nn.Sequential(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), nn.Conv2d(8, 8, 3))
    cost = counted(model, torch.randn(1, 3, 16, 16))
    return cost.macs == 3 * 8 * 9 * 14 * 14 + 8 * 8 * 9 * 12 * 12


@report("torchinfo#139", "the input is a list", 64)
def _():
    return macs(
        Call(lambda model, xs: model.layer(xs[0]), layer=nn.Linear(8, 4)), [torch.ones(2, 8)]
    )


@report("torchinfo#141", "the output is a tuple with a mapping", 64)
def _():
    def forward(model, x):
        return model.layer(x), {"hidden": [x]}

    return macs(Call(forward, layer=nn.Linear(8, 4)), torch.ones(2, 8))


@report("torchinfo#311", "an input without dimensions", 64)
def _():
    return macs(
        Call(lambda model, x, t: model.layer(x * t), layer=nn.Linear(8, 4)),
        torch.ones(2, 8), torch.tensor(0.5),
    )  # fmt: skip


@report("calculate-flops#24", "the model is 50 % of itself", True)
def _():
    cost = counted(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), torch.ones(2, 8))
    return cost.flops == 2 * (2 * 64 + 2 * 32) + 16


@report("transformers#15006", "ViT-L/16 is several times too large", 61.555)
def _():
    vision = pytest.importorskip("torchvision")
    with torch.device("meta"):
        model, x = vision.models.vit_l_16(), torch.randn(1, 3, 224, 224)
    return round(macs(model.eval(), x) / 1e9, 3)  # as torchvision publishes it


@report("pytorch#134242", "a layer that is called again within itself", 3 * 2 * 64)
def _():
    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x, depth=2):
            x = self.layer(x)
            return self(x, depth - 1) if depth else x

    return macs(Again(), torch.ones(2, 8))


@pytest.mark.parametrize(("measured", "expected"), REPORTS)
def test_a_reported_fault_is_not_ours(measured, expected):
    assert measured() == expected
