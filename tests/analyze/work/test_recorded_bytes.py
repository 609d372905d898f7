"""Bytes of recorded calls: by hand, and beside what the same calls moved live."""

import collections

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from torchgauge.analyze.trace.device_work import attributed
from torchgauge.analyze.work.event_costs import ABSENT, event_costs
from torchgauge.analyze.work.recorded_work import Texts, recorded_bytes, recorded_work, without_out
from torchgauge.formulas import written
from torchgauge.formulas.operand import Described
from torchgauge.formulas.traffic import PRODUCTS, bytes_of
from torchgauge.readers.kineto.kineto import read_events

X = torch.randn(4, 8, 16, 16)
HALF = X.bfloat16()
WEIGHT, BIAS = torch.ones(8), torch.zeros(8)
QUERY = torch.randn(2, 4, 32, 16)
SQUARE, BATCH, KERNELS = torch.ones(16, 16), torch.ones(4, 16, 16), torch.ones(8, 8, 3, 3)
PLACES = [torch.zeros(size, dtype=torch.long) for size in [(4, 16, 16)] * 2 + [(4, 1, 16, 16)]]


class Moved(TorchDispatchMode):
    """Notes the bytes of each call as the counter does, from real tensors."""

    def __init__(self):
        super().__init__()
        self.bytes = collections.Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        outputs = func(*args, **(kwargs or {}))
        name = func._schema.name
        moved = bytes_of(name, args, kwargs or {}, outputs)
        self.bytes += collections.Counter({name: moved})
        return outputs


def recording(call, tmp_path):
    with torch.profiler.profile(record_shapes=True) as profiler:
        call()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    return read_events(tmp_path / "trace.json")


def recorded(call, tmp_path):
    """Return the known bytes by operator of a call that the profiler recorded, and the others."""
    events = recording(call, tmp_path)
    _, spans = attributed(events)
    costs = event_costs(events, spans)
    names = events.name.take(spans.row)
    known, unknown = collections.Counter(), set()
    for span in costs.counts.nonzero()[0]:
        name = str(names[span]).partition(".")[0].replace("::softmax", "::_softmax")
        name = name.replace("::log_softmax", "::_log_softmax")  # these count at the composite
        if costs.bytes[span] == ABSENT:
            unknown.add(name)
        else:
            known += collections.Counter({name: int(costs.bytes[span])})
    return known, unknown


CALLS = [
    lambda: X.exp() + X.sigmoid(),
    lambda: X + HALF,  # bfloat16 and float32 give float32
    lambda: HALF + torch.tensor(1.0),  # no dimensions, and of the same kind: bfloat16
    lambda: X > HALF,
    lambda: (X.tanh() < X).logical_not(),
    lambda: torch.add(X, X.abs(), out=torch.empty_like(X)),
    lambda: torch.exp(X, out=torch.empty_like(X)),
    lambda: torch.mm(QUERY[0, 0], SQUARE, out=torch.empty(32, 16)),
    lambda: torch.mm(QUERY[0, 0], SQUARE, out=torch.empty(0)),  # its size is what comes out
    lambda: torch.bmm(QUERY[0], BATCH, out=torch.empty(4, 32, 16)),
    lambda: torch.addmm(torch.ones(16), QUERY[0, 0], SQUARE, out=torch.empty(32, 16)),
    lambda: torch.baddbmm(torch.ones(4, 32, 16), QUERY[0], BATCH, out=torch.empty(4, 32, 16)),
    lambda: torch.ops.aten.convolution.out(
        X, KERNELS, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, out=torch.empty(4, 8, 14, 14)
    ),
    lambda: (torch.sum(X, 1, out=torch.empty(4, 16, 16)), torch.argmax(X, 1, out=PLACES[0])),
    lambda: (
        torch.ops.aten._softmax.out(X, 1, False, out=X.neg()),
        torch.cumsum(X, 1, out=X.neg()),
    ),
    lambda: torch.max(X, 1, out=(torch.empty(4, 16, 16), PLACES[1])),
    lambda: torch.gather(X, 1, PLACES[2], out=torch.empty(4, 1, 16, 16)),
    lambda: torch.index_select(X, 1, torch.tensor([0, 3]), out=torch.empty(4, 2, 16, 16)),
    lambda: torch.ops.aten.native_layer_norm.out(
        X, [16], None, None, 1e-5, out0=X.neg(), out1=X[..., :1].abs(), out2=X[..., :1].abs()
    ),
    lambda: torch.lerp(X, X.neg(), X.abs()),
    lambda: torch.where(X.neg() < X, X, HALF),
    lambda: X.to(torch.bfloat16).to(torch.float64),
    lambda: X[:, :, ::2].clone(),
    lambda: X.sum() + X.mean(),
    lambda: (X.sum((1, 2)), X.mean(3, keepdim=True), X.sum(dtype=torch.float64), X.prod(1)),
    lambda: X.long().sum(1),
    lambda: (X.amax(1), X.max(), X.max(2), X.argmax(1), X.var(1), X.std(2), X.norm()),
    lambda: (X.bool().any(), X.bool().all(1), torch.linalg.vector_norm(X, dim=(1, 2))),
    lambda: (X.softmax(1), X.log_softmax(1), X.cumsum(1)),
    lambda: functional.layer_norm(X, (16, 16)),
    lambda: functional.layer_norm(X.transpose(1, 3).contiguous(), (8,), WEIGHT, BIAS),
    lambda: functional.group_norm(X, 2, WEIGHT, BIAS),
    lambda: functional.batch_norm(X, BIAS.clone(), WEIGHT.clone(), training=True),
    lambda: functional.batch_norm(X, BIAS, WEIGHT),
    lambda: functional.gelu(functional.silu(X)),
    lambda: functional.max_pool2d(functional.avg_pool2d(X, 2), 2),
    lambda: functional.embedding(torch.arange(6).view(2, 3), QUERY[0, 0]),
    lambda: X.gather(1, torch.zeros(4, 3, 16, 16, dtype=torch.long)),
    lambda: X.index_select(1, torch.tensor([0, 3, 3])),
    lambda: functional.scaled_dot_product_attention(QUERY, QUERY, QUERY, is_causal=True),
]


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_a_recorded_call_moves_what_the_live_one_moved(call, tmp_path):
    with Moved() as live:
        call()
    known, unknown = recorded(call, tmp_path)
    # The same tensor twice looks like two in a trace, so no call above has that.
    if call is not CALLS[-1]:
        assert known == live.bytes
        assert not unknown
    else:  # queries are keys and values, too: the live call reads them once
        name = "aten::_scaled_dot_product_flash_attention_for_cpu"
        assert known[name] == live.bytes[name] + 2 * QUERY.nbytes


def backward():
    x = X.clone().requires_grad_()
    hidden = functional.conv2d(x, torch.ones(8, 8, 3, 3, requires_grad=True), BIAS, padding=1)
    hidden = functional.batch_norm(hidden, None, None, WEIGHT, BIAS, training=True)
    hidden = functional.group_norm(hidden.relu(), 2, WEIGHT.clone().requires_grad_(), BIAS)
    hidden = functional.layer_norm(functional.gelu(hidden), (16,))
    functional.max_pool2d(hidden.softmax(1), 2).sum().backward()


def test_backward_operators_write_the_gradients_that_were_asked_for(tmp_path):
    with Moved() as live:
        backward()
    known, unknown = recorded(backward, tmp_path)
    assert not unknown
    backwards = {name: moved for name, moved in live.bytes.items() if "backward" in name}
    assert len(backwards) == 8
    assert {name: known[name] for name in backwards} == backwards


def arguments_of(schema):
    """Return described tensors where a schema has some, and numbers or nothing elsewhere."""
    return tuple(
        Described((4, 8)) if "Tensor" in str(argument.type) else None
        for argument in schema.arguments
    )


def test_out_is_told_from_what_is_read_in_every_overload_that_torch_has():
    """Its arguments are behind the others, and a trace does not always name the overload."""
    names = {*written._RULES, *written._ELEMENTWISE, *written.POINTWISE, *PRODUCTS}
    wrong, with_out = [], 0
    for schema in torch._C._jit_get_all_schemas():
        operands = arguments_of(schema)
        # Two tensors are two values that are compared, or one and a result: both are unknown.
        ambiguous = schema.name in ("aten::max", "aten::min") and len(operands) == 2
        lists = any("List[Tensor]" in str(argument.type) for argument in schema.arguments)
        if schema.name not in names or ambiguous or lists or not operands:
            continue
        reads, outs = without_out(schema.name, operands)
        expected = sum(argument.is_out for argument in schema.arguments)
        expected *= schema.name.startswith("aten::__") or not schema.name.endswith("_")
        with_out += expected > 0
        wrong += [(str(schema), len(outs))] if len(outs) != expected else []
        assert (*reads, *outs) == operands
    assert not wrong
    assert with_out > 200


def test_the_bytes_of_a_product_with_out_are_its_operands_once():
    """As Inductor calls it: [1, 4096] × [4096, 4096] in bfloat16 reads the matrix once."""
    row, square = (Described(shape, "bfloat16", (), 2) for shape in ((1, 4096), (4096, 4096)))
    moved = 2 * (4096 + 4096 * 4096 + 4096)
    assert moved == 33_570_816
    assert recorded_bytes("aten::mm", (row, square, row)) == moved
    assert recorded_bytes("aten::mm.out", (row, square, row)) == moved
    assert recorded_bytes("aten::mm", (row, square)) == moved


FLOAT, LONG = Described((4, 8), "float32"), Described((4, 8), "int64", (), 8)


def test_types_that_are_not_certain_make_bytes_unknown():
    assert recorded_bytes("aten::add", (FLOAT, LONG, 1)) == 32 * (4 + 8 + 4)
    # Whole numbers divided are of torch's default type, which no trace says.
    assert recorded_bytes("aten::div", (LONG, LONG)) is None
    assert recorded_bytes("aten::mul", (LONG, 2.5)) is None
    halves = Described((4,), "float16", (), 2), Described((4,), "bfloat16", (), 2)
    assert recorded_bytes("aten::add", (*halves, 1)) is None
    assert recorded_bytes("aten::frexp", (FLOAT,)) is None


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("_scaled_dot_product_flash_attention", ("0.",)),
        ("_scaled_dot_product_flash_attention_for_cpu", ("0.",)),
        ("_scaled_dot_product_efficient_attention", ("", "False", "0.")),
    ],
)
@pytest.mark.parametrize("causal", [True, False])
def test_attention_that_the_file_calls_causal_does_the_triangle(name, before, causal):
    sizes = ((2, 4, 32, 16),) * 3
    inputs = ("",) * 3 + before + (str(causal),)
    types = ("float",) * 3 + tuple("Scalar" if text else "" for text in inputs[3:])
    dims = sizes + ((),) * (len(inputs) - 3)
    work = recorded_work(f"aten::{name}", Texts(dims, types, None, inputs)).work
    whole, triangle = 2 * 8 * 32 * 32 * 32, 2 * 8 * (32 * 33 // 2) * 32
    assert (work.matmul, work.causal) == (whole, triangle if causal else None)


@pytest.mark.parametrize("causal", [True, False])
def test_a_trace_counts_of_causal_attention_the_triangle_alone(causal, tmp_path):
    def attend():
        functional.scaled_dot_product_attention(QUERY, QUERY, QUERY, is_causal=causal)

    events = recording(attend, tmp_path)
    costs = event_costs(events, attributed(events)[1])
    pairs = 32 * 33 // 2 if causal else 32 * 32
    assert int(costs.matmul[costs.matmul > 0].sum()) == 2 * 8 * pairs * 32


@pytest.mark.parametrize("causal", [True, False])
def test_attention_of_the_package_flash_attn_does_so_too(causal):
    sizes = ((2, 32, 8, 16), (2, 32, 2, 16), (2, 32, 2, 16), (), (), ())
    types = ("c10::Half",) * 3 + ("Scalar",) * 3
    texts = Texts(sizes, types, None, ("", "", "", "0.", "0.25", str(causal)))
    work = recorded_work("flash_attn::_flash_attn_forward", texts).work
    assert work.matmul == 2 * 2 * 8 * 32 * 32 * 32
    assert work.causal == (2 * 2 * 8 * (32 * 33 // 2) * 32 if causal else None)
