import pytest
import torch
from tests.support.product_calls import described, work
from tests.support.vector_calls import aten, work_of
from torch.ao.nn.quantized import dynamic

T, N, IN, H = 3, 5, 8, 16
MACS_PER_GATE = T * N * 2 * H * ((IN + H) + (2 * H + H))  # two layers, both directions
CELLS = T * N * 2 * 2 * H
KINDS = [("lstm", 4, 17), ("gru", 3, 14)]


class Float16:
    """What packed float16 weights say of themselves."""

    def __getstate__(self):
        return (("quantized_fp16", [], [], [], []), "rnn.CellParamsBase")


@pytest.mark.parametrize(("kind", "gates", "cell"), KINDS)
def test_the_sizes_follow_from_those_of_the_states(kind, gates, cell):
    state = described(4, N, H)
    hx = [state, state] if kind == "lstm" else state
    name, products = f"aten::quantized_{kind}", 2 * gates * MACS_PER_GATE
    x, rest = described(T, N, IN), (True, 2, 0.0, False, True, False)
    assert work(name, x, hx, [object()], *rest) == (0, cell * CELLS, products, None, False)
    assert work(name, x, hx, [Float16()], *rest) == (products, cell * CELLS, 0, None, False)
    data, sizes = described(10, IN), described(T, dtype="int64")
    packed = work(name, data, sizes, hx, [object()], *rest[:-1])
    assert packed == (0, cell * CELLS * 2 // 3, products * 2 // 3, None, False)


@pytest.mark.parametrize(("dtype", "whole"), [(torch.qint8, True), (torch.float16, False)])
def test_as_torch_packs_them(dtype, whole):
    layer = dynamic.LSTM(IN, H, dtype=dtype)
    params = [one.param for one in layer._all_weight_values]
    hx = [torch.zeros(1, N, H)] * 2
    call = (torch.rand(T, N, IN), hx, params, True, 1, 0.0, False, False, False)
    options = {"dtype": dtype, "use_dynamic": True}
    found = work_of(aten.quantized_lstm.input, *call, **options)
    products = 2 * T * N * 4 * H * (IN + H)
    assert (found.integer, found.matmul) == ((products, 0) if whole else (0, products))


@pytest.mark.parametrize(
    ("name", "gates", "cell"), [("lstm", 4, 17), ("gru", 3, 14), ("rnn_tanh", 1, 3)]
)
def test_one_step(name, gates, cell):
    state = described(N, H)
    hx = [state, state] if name == "lstm" else state
    name = f"quantized::quantized_{name}_cell_dynamic"
    found = work(name, described(N, IN), hx, object(), object(), None, None)
    assert found == (0, cell * N * H, 2 * N * gates * H * (IN + H), None, False)


def test_one_step_on_float16_weights():
    pack = torch.ops.quantized.linear_prepack_fp16
    weights = [pack(torch.rand(4 * H, inner), torch.rand(4 * H)) for inner in (IN, H)]
    state = described(N, H)
    call = (described(N, IN), [state, state], *weights, None, None)
    found = work("quantized::quantized_lstm_cell_dynamic", *call)
    assert (found.matmul, found.integer) == (2 * N * 4 * H * (IN + H), 0)
