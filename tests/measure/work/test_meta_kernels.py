"""Operators whose meta kernel refuses a type that real kernels take: counted as on real tensors."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import torchgauge as tg
from torchgauge.api.measurements import count_request
from torchgauge.errors import MeasurementError
from torchgauge.measure.forward import opened
from torchgauge.measure.work.count import measure_cost
from torchgauge.measure.work.count_options import CountOptions
from torchgauge.targets.builds.source import Source
from torchgauge.targets.target import TargetRequest

# 36 float32 are a multiple of 16 bytes apart, as grouped products want it; 36 bfloat16 are not.
WIDTH, GROUPS, ROWS = 36, 3, 10
OUT = 20
EXPERTS = (
    "num_hidden_layers=2&hidden_size=36&num_attention_heads=3&num_key_value_heads=1&vocab_size=50"
)
MIXTURES = {
    "mixtral": f"{EXPERTS}&intermediate_size=20&num_local_experts=4",
    "qwen3_moe": f"{EXPERTS}&intermediate_size=20&moe_intermediate_size=20&num_experts=4"
    "&num_experts_per_tok=2",
    "gpt_oss": f"{EXPERTS}&head_dim=12&intermediate_size=20&num_local_experts=4",
}


class Grouped(nn.Module):
    """Experts: a product for each group of rows, or of batches, the operands as linear layers."""

    def __init__(self, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(GROUPS, OUT, WIDTH, dtype=dtype))

    def forward(self, operand, offsets=None):
        weight = self.weight.transpose(-2, -1)
        return torch.nn.functional.grouped_mm(operand, weight, offs=offsets)


def rows_in_groups():
    return (torch.zeros(ROWS, WIDTH), torch.tensor([4, 6, 10], dtype=torch.int32))


def batches():
    return (torch.zeros(GROUPS, ROWS, WIDTH),)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("inputs", "rows"), [(rows_in_groups(), ROWS), (batches(), GROUPS * ROWS)])
def test_a_grouped_product_in_float32_counts_on_meta_as_on_real_tensors(inputs, rows, backward):
    model = Grouped(torch.float32)
    real = tg.count_cost(model, inputs, backward=backward)
    meta = tg.count_cost(
        model.to("meta"), tuple(one.to("meta") for one in inputs), backward=backward
    )
    assert meta.macs == (2 if backward else 1) * rows * WIDTH * OUT  # backward: of the weight
    assert (meta.matmul_flops, meta.bytes) == (real.matmul_flops, real.bytes)
    assert {row.dtype for row in meta.rows if row.matmul_flops} == {"float32"}
    assert meta.unknown == {}


def test_fake_tensors_in_float32():
    with FakeTensorMode():
        model = Grouped(torch.float32)
        cost = tg.count_cost(model, batches())
    assert cost.counted_on == "fake"
    assert cost.macs == GROUPS * ROWS * WIDTH * OUT


@pytest.mark.parametrize(
    ("weight", "operand"),
    [
        (torch.float64, torch.zeros(GROUPS, ROWS, WIDTH, dtype=torch.float64)),
        (torch.bfloat16, torch.zeros(GROUPS, ROWS, WIDTH)),
        (torch.float32, torch.zeros(GROUPS, ROWS, WIDTH - 4)),
    ],
    ids=["float64", "types that differ", "sizes that differ"],
)
def test_what_no_kernel_takes_is_still_refused(weight, operand):
    for device in ("cpu", "meta"):
        with pytest.raises(MeasurementError, match="raised"):
            count_on(device, Grouped(weight), operand)


class WithoutAutocast(nn.Module):
    """Turns autocast off where its input is, as rotary embeddings do, or turns it on."""

    def __init__(self, enabled):
        super().__init__()
        self.layer, self.enabled = nn.Linear(8, 4), enabled

    def forward(self, x):
        with torch.autocast(x.device.type, enabled=self.enabled):
            return self.layer(x)


def test_autocast_is_turned_off_on_meta():
    original = torch.autocast.__init__
    inputs = torch.zeros(2, 8, device="meta")
    # What autocast does to tensors of a device is not done to those of meta.
    for enabled, device in ((False, "meta"), (True, "cpu")):
        cost = tg.count_cost(WithoutAutocast(enabled).to("meta"), inputs)
        assert (cost.macs, cost.counted_on) == (2 * 8 * 4, device)
    assert torch.autocast.__init__ is original


class Policy(nn.Module):
    """Keeps what it drew from, whose probabilities are checked: a question about values."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        self.drawn_from = torch.distributions.Categorical(logits=self.layer(x))
        return self.drawn_from.logits


def test_the_calls_before_the_counted_one_run_on_meta_as_it_does():
    cost = tg.count_cost(Policy().to("meta"), torch.zeros(2, 8, device="meta"))
    assert cost.macs == 2 * 8 * 4
    assert cost.warnings == ()
    assert cost.flops_range is None


def count_on(device, model, operand):
    source = Source.of_object(model.to(device), operand.to(device))
    return measure_cost(opened(source), backward=False)


@pytest.mark.parametrize(
    "name", ["mixtral", *(pytest.param(name, marks=pytest.mark.slow) for name in [*MIXTURES][1:])]
)
def test_experts_in_float32_count_on_meta_as_on_the_cpu(name):
    spec = f"hf:{name}?{MIXTURES[name]}"
    meta, real = (
        count_request(TargetRequest(spec, device=device), CountOptions()).cost
        for device in ("meta", "cpu")
    )
    assert meta.counted_on == "meta"
    assert meta.unknown == real.unknown == {}
    assert (meta.matmul_flops, meta.causal_matmul_flops) == (
        real.matmul_flops, real.causal_matmul_flops
    )  # fmt: skip


class Constants(nn.Module):
    """Tensors that a module makes on the CPU for good, beside a layer on meta."""

    SCALE = torch.arange(4.0)
    PLACES = torch.tensor([2, 0, 1])

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        x = x * self.SCALE
        x += self.SCALE
        return self.layer(x)[:, self.PLACES]


@pytest.mark.parametrize("backward", [False, True])
def test_constants_on_the_cpu_count_on_meta_as_on_real_tensors(backward):
    model, x = Constants(), torch.ones(5, 4)
    real = tg.count_cost(model, x, backward=backward)
    meta = tg.count_cost(model.to("meta"), x.to("meta"), backward=backward)
    assert meta.counted_on == "meta"
    assert meta.macs == (2 if backward else 1) * 5 * 4 * 3
    assert (meta.totals, meta.bytes) == (real.totals, real.bytes)


ROWS_OF_SPARSE, INNER, STORED, COLUMNS = 40, 50, 39, 8


def sparse(device, layout=torch.sparse_coo):
    places = torch.stack([torch.arange(STORED), torch.arange(1, STORED + 1)]).to(device)
    values = torch.ones(STORED, device=device)
    if layout is torch.sparse_csr:
        ends = torch.arange(ROWS_OF_SPARSE + 1, device=device).clamp(max=STORED)
        size = (ROWS_OF_SPARSE, INNER)
        return torch.sparse_csr_tensor(ends, places[1], values, size, device=device)
    return torch.sparse_coo_tensor(places, values, (ROWS_OF_SPARSE, INNER), device=device)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("home", ["meta", "cpu"])
def test_sparse_products_on_meta_keep_what_is_stored(layout, home):
    matrix, dense = sparse(home, layout), torch.empty(INNER, COLUMNS, device="meta")
    cost = tg.count_cost(lambda x: torch.sparse.mm(matrix, x), dense)
    assert (cost.macs, cost.counted_on) == (STORED * COLUMNS, "meta")
    other = sparse("cpu", layout)
    real = tg.count_cost(lambda x: torch.sparse.mm(other, x), torch.ones(INNER, COLUMNS))
    assert cost.bytes == real.bytes
    assert cost.warnings == ()


def test_sparse_tensors_that_lost_what_they_store_are_refused():
    class Product(nn.Module):
        def forward(self, matrix, x):
            return matrix @ x

    inputs = sparse("cpu").to("meta"), torch.empty(INNER, COLUMNS, device="meta")
    with pytest.raises(tg.TorchgaugeError) as refused:
        tg.count_cost(Product(), inputs)
    assert refused.value.id == "sparse-without-values"


FACTORY = """
import torch


class Product(torch.nn.Module):
    def forward(self, matrix, x):
        return torch.sparse.mm(matrix, x)


def made():
    return Product(), (torch.eye(8)[:, :6].to_sparse(), torch.randn(6, 3))
"""


@pytest.mark.thorough
def test_sparse_inputs_of_a_file_are_counted_on_the_cpu_by_itself(tmp_path, capsys):
    from torchgauge.cli.main import main

    path, record = tmp_path / "product.py", tmp_path / "count.json"
    path.write_text(FACTORY)
    assert main(["count", f"{path}:made", "-o", str(record)]) == 0
    cost = tg.load(record).cost
    assert (cost.macs, cost.counted_on) == (6 * 3, "cpu")
    (warning,) = [one for one in cost.warnings if one.id == "counted-on-cpu"]
    assert warning.message.count(". ") == 0
    assert len(warning.message) < 250
