import pytest
import torch
from tests.support.product_calls import described, work
from tests.support.vector_calls import aten, work_of
from torch import nn

T, N, IN, H = 3, 5, 8, 16
X = described(T, N, IN)
# Two layers, both directions: the second layer's input is 2·H wide.
MACS_PER_GATE = T * N * 2 * H * ((IN + H) + (2 * H + H))
CELLS = T * N * 2 * 2 * H
LSTM, GRU, TANH = 2, 3, 1
MODES = [(LSTM, 4, 17), (GRU, 3, 14), (TANH, 1, 3)]
WHOLE = {LSTM: "aten::lstm", GRU: "aten::gru", TANH: "aten::rnn_tanh"}


def weights(gates, projection=None):
    """Of two layers and both directions, with biases."""
    found = []
    state = projection or H
    for inner in (IN, 2 * state):
        for _ in range(2):
            found += [described(gates * H, inner), described(gates * H, state)]
            found += [described(gates * H), described(gates * H)]
            found += [described(projection, H)] if projection else []
    return found


def test_the_figure_for_an_lstm_of_two_layers_and_directions():
    assert 4 * MACS_PER_GATE == 138_240


@pytest.mark.parametrize(("mode", "gates", "cell"), MODES)
def test_all_layers_in_one_operator(mode, gates, cell):
    expected = (2 * gates * MACS_PER_GATE, cell * CELLS, 0, None, False)
    call = (X, weights(gates), 4, None, None, None, mode, H, 0, 2, False, 0.0, True, True, [], None)
    assert work("aten::_cudnn_rnn", *call) == expected
    call = (X, weights(gates), 4, None, None, mode, H, 2, False, 0.0, True, True, [], None)
    assert work("aten::miopen_rnn", *call) == expected
    state = described(4, N, H)
    hx = [state, state] if mode == LSTM else state
    rest = (True, 2, 0.0, True, True, False)
    assert work(WHOLE[mode], X, hx, weights(gates), *rest) == expected


@pytest.mark.parametrize(("mode", "gates", "cell"), MODES)
def test_a_packed_batch_has_the_rows_that_it_stores(mode, gates, cell):
    state = described(4, N, H)
    hx = [state, state] if mode == LSTM else state
    data, sizes = described(T * N - 5, IN), described(T, dtype="int64")
    found = work(WHOLE[mode], data, sizes, hx, weights(gates), True, 2, 0.0, True, True)
    assert found.matmul == 2 * gates * MACS_PER_GATE * 10 // 15
    assert found.vector == cell * CELLS * 10 // 15


def test_a_projection_is_one_more_product_and_no_more_cells():
    parameters = weights(4, projection=6)
    found = work("aten::lstm", X, [], parameters, True, 2, 0.0, True, True, False)
    layers = 2 * (4 * H * (IN + 6) + 6 * H) + 2 * (4 * H * (2 * 6 + 6) + 6 * H)
    assert found.matmul == 2 * T * N * layers
    assert found.vector == 17 * CELLS


@pytest.mark.parametrize(("mask", "times"), [((1, 1, 1, 1), 2), ((1, 1, 1, 0), 1)])
def test_backward_is_once_more_for_the_weights(mask, times):
    call = (X, weights(4), 4, None, None, None, None, None, None, None, LSTM, H)
    for name, more in (("_cudnn_rnn_backward", (0,)), ("miopen_rnn_backward", ())):
        rest = (*more, 2, False, 0.0, True, True, [], None, None, mask)
        assert work(f"aten::{name}", *call, *rest).matmul == times * 2 * 138_240


def test_mkldnn_as_torch_calls_it():
    layer, x = nn.LSTM(IN, H), torch.rand(T, N, IN)
    state = torch.zeros(N, H)
    call = (x, *(one.detach() for one in layer._flat_weights), state, state)
    options = (False, [], LSTM, H, 1, True, False, False, True)
    found = work_of(aten.mkldnn_rnn_layer.default, *call, *options)
    assert found == (2 * T * N * 4 * H * (IN + H), 17 * T * N * H, 0, None, False)
    out, hy, cy, _ = aten.mkldnn_rnn_layer(*call, *options)
    back = (*call, out, hy, cy, out, hy, cy, False, LSTM, *options[3:6], True, False, [], True)
    again = work("aten::mkldnn_rnn_layer_backward", *back, described(1))
    assert again.matmul == 2 * found.matmul


def test_on_apples_gpus():
    found = work("aten::_lstm_mps", X, [], weights(4), True, 2, 0.0, True, True, False)
    assert found.matmul == 2 * 138_240
    call = (None, None, None, None, None, X, None, [], weights(4), True, 2, 0.0, True, True, False)
    assert work("aten::lstm_mps_backward", *call).matmul == 2 * 2 * 138_240


@pytest.mark.parametrize(
    ("name", "gates", "cell"), [("lstm_cell", 4, 17), ("gru_cell", 3, 14), ("rnn_relu_cell", 1, 3)]
)
def test_one_step(name, gates, cell):
    state, matrices = described(N, H), (described(gates * H, IN), described(gates * H, H))
    found = work(f"aten::{name}", described(N, IN), state, *matrices, None, None)
    assert found == (2 * N * gates * H * (IN + H), cell * N * H, 0, None, False)


def test_fused_cells_do_elementwise_work_alone():
    state = described(N, H)
    for name, operations in (("lstm", 17), ("gru", 14)):
        gates = described(N, 4 * H)
        found = work(f"aten::_thnn_fused_{name}_cell", gates, gates, state)
        assert found == (0, operations * N * H, 0, None, False)
    found = work("aten::_thnn_fused_lstm_cell_backward_impl", None, None, state, None, None, True)
    assert found == (0, 2 * 17 * N * H, 0, None, False)
    found = work("aten::_thnn_fused_gru_cell_backward", state, None, True)
    assert found == (0, 2 * 14 * N * H, 0, None, False)
