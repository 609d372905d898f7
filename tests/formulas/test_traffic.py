"""Bytes by hand: float32 takes 4, int64 takes 8."""

import pytest
import torch

from torchgauge.formulas.operand import Described, touched
from torchgauge.formulas.traffic import _RULES, bytes_of

aten = torch.ops.aten


def moved(overload, *args, **kwargs):
    return bytes_of(overload._schema.name, args, kwargs, overload(*args, **kwargs))


def ones(*sizes):
    return torch.ones(*sizes)


def places(*values):
    return torch.tensor(values)


A = ones(4, 8)  # 128 bytes


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ((aten.clone.default, A), 128 + 128),
        ((aten.add.Tensor, A, ones(4, 8)), 3 * 128),
        ((aten.add.Tensor, A, ones(8)), 128 + 32 + 128),
        ((aten.add.Scalar, A, 1), 2 * 128),
        ((aten.mul.Tensor, A, A), 2 * 128),  # x * x reads x once
        ((aten.mm.default, A, ones(8, 2)), 128 + 64 + 4 * 2 * 4),
        ((aten.sum.default, A), 128 + 4),
        ((aten.gt.Scalar, A, 0), 128 + 32),  # booleans take one byte
        ((aten._to_copy.default, A), 256),
        ((aten.cat.default, [A, A]), 512),
    ],
)
def test_inputs_are_read_and_outputs_written_once(call, expected):
    assert moved(*call) == expected


def test_a_convolution_reads_its_bias_too():
    call = (ones(1, 3, 8, 8), ones(5, 3, 3, 3), ones(5), [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    assert moved(aten.convolution.default, *call) == 4 * (192 + 135 + 5 + 5 * 6 * 6)


def test_dimensions_of_stride_zero_count_once():
    wide = ones(1, 8).expand(1000, 8)
    assert touched(wide) == 32
    assert moved(aten.sum.default, wide) == 32 + 4
    assert touched(ones(8, 4).t()) == 128
    assert touched(ones(2, 3, 4, 4).to(memory_format=torch.channels_last)) == 4 * 96


def test_overlapping_windows_count_the_memory_they_span():
    windows = torch.arange(10.0).unfold(0, 4, 1)  # 7 windows of 4 over 10 elements
    assert windows.numel() == 28
    assert touched(windows) == 40


@pytest.mark.parametrize(
    "call",
    [
        (aten.view.default, A, [32]),
        (aten.t.default, A),
        (aten.expand.default, ones(1, 8), [4, 8]),
        (aten.detach.default, A),
        (aten.empty.memory_format, [4, 8]),
        (aten.zeros.default, [4, 8]),
        (aten.arange.default, 10),
        (aten.t_.default, ones(4, 8)),
    ],
)
def test_views_and_creation_move_nothing(call):
    assert moved(*call) == 0


def test_in_place_reads_and_writes_its_destination():
    assert moved(aten.add_.Tensor, ones(4, 8), A) == 3 * 128
    assert moved(aten.relu_.default, ones(4, 8)) == 2 * 128


def test_what_is_overwritten_is_not_read():
    assert moved(aten.copy_.default, ones(4, 8), A) == 2 * 128
    assert moved(aten.copy_.default, ones(4, 8), ones(8)) == 32 + 128
    assert moved(aten.fill_.Scalar, ones(4, 8), 1) == 128
    assert moved(aten.zero_.default, ones(4, 8)) == 128
    assert moved(aten.normal_.default, ones(4, 8)) == 128
    assert moved(aten.bernoulli_.float, ones(4, 8), 0.5) == 128
    assert moved(aten.add.out, A, ones(4, 8), out=ones(4, 8)) == 3 * 128


def test_look_ups_read_the_rows_they_reach():
    table = ones(1000, 8)
    three = places(5, 5, 7)
    assert moved(aten.embedding.default, table, three) == 3 * 32 + 3 * 8 + 3 * 32
    assert moved(aten.index_select.default, table, 0, three) == 2 * 96 + 24
    assert moved(aten.index.Tensor, table, [three]) == 2 * 96 + 24
    columns = torch.zeros(2, 8, dtype=torch.int64)
    assert moved(aten.gather.default, table, 0, columns) == 2 * 64 + 128
    assert moved(aten.take.default, table, three) == 2 * 12 + 24
    # Two bags of three rows and no weights; four outputs, of which all but the first are indices.
    call = (table, three, places(0, 2))
    outputs = aten._embedding_bag(*call)
    expected = 3 * 32 + 24 + 16 + sum(one.nbytes for one in outputs)
    assert bytes_of("aten::_embedding_bag", call, {}, outputs) == expected


def test_a_mask_is_read_whole():
    mask = torch.zeros(4, 8, dtype=torch.bool)
    mask[0, :3] = True
    assert moved(aten.masked_select.default, A, mask) == 32 + 2 * 12
    assert moved(aten.index.Tensor, A, [mask]) == 32 + 2 * 12


def test_scattering_in_place_touches_the_places_written():
    rows = ones(3, 8)
    three = places(5, 6, 7)

    def table():
        return ones(1000, 8)

    assert moved(aten.index_put_.default, table(), [three], rows) == 24 + 96 + 96
    assert moved(aten.index_put_.default, table(), [three], rows, True) == 24 + 96 + 2 * 96
    assert moved(aten.index_put_.default, table(), [three], torch.tensor(1.0)) == 24 + 4 + 96
    # A column of each row: 1000 elements by the second index alone.
    column = [None, places(1)]
    assert moved(aten.index_put_.default, table(), column, torch.tensor(1.0)) == 8 + 4 + 4000
    # Two indices that broadcast: 2·3 elements.
    both = [places(1, 2)[:, None], three]
    assert moved(aten.index_put_.default, table(), both, torch.tensor(1.0)) == 16 + 24 + 4 + 24
    assert moved(aten.index_add_.default, table(), 0, three, rows) == 24 + 96 + 2 * 96
    assert moved(aten.index_copy_.default, table(), 0, three, rows) == 24 + 96 + 96
    assert moved(aten.index_fill_.int_Scalar, table(), 0, three, 1) == 24 + 96
    where = torch.zeros(2, 8, dtype=torch.int64)
    assert moved(aten.scatter_.src, table(), 0, where, rows) == 128 + 64 + 64
    assert moved(aten.scatter_.value, table(), 0, where, 1) == 128 + 64
    assert moved(aten.scatter_add_.default, table(), 0, where, rows) == 128 + 64 + 2 * 64
    reduced = 128 + 64 + 2 * 64
    assert moved(aten.scatter_.reduce, table(), 0, where, rows, reduce="add") == reduced
    assert moved(aten.scatter_reduce_.two, table(), 0, where, rows, "sum") == reduced
    assert moved(aten.put_.default, table(), three, ones(3)) == 24 + 12 + 12
    assert moved(aten.put_.default, table(), three, ones(3), True) == 24 + 12 + 2 * 12


def test_scattering_out_of_place_copies_the_rest():
    three = places(5, 6, 7)
    table = ones(100, 8)
    expected = 3200 + 24 + 96 + 3200
    assert moved(aten.index_put.default, table, [three], ones(3, 8)) == expected


def test_lists():
    def pair():
        return [ones(4), ones(6)]  # 40 bytes

    assert moved(aten._foreach_add.List, pair(), pair()) == 3 * 40
    assert moved(aten._foreach_add_.List, pair(), pair()) == 3 * 40
    assert moved(aten._foreach_copy_.default, pair(), pair()) == 2 * 40
    assert moved(aten._foreach_zero_.default, pair()) == 40
    steps = [torch.zeros(()), torch.zeros(())]
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.9, "weight_decay": 0.0, "eps": 1e-8}
    options |= {"amsgrad": False, "maximize": False}
    lists = (pair(), pair(), pair(), pair(), [], steps)
    # Parameters, gradients and two moments read, and all but the gradients written; the counters.
    assert moved(aten._fused_adam_.default, *lists, **options) == 4 * 40 + 3 * 40 + 8


def test_optimizers_write_what_they_keep():
    def pair():
        return [ones(4), ones(6)]  # 40 bytes

    options = {"weight_decay": 0.0, "momentum": 0.9, "lr": 0.1, "dampening": 0.0}
    options |= {"nesterov": False, "maximize": False, "is_first_step": False}
    # Parameters, gradients and momentum read, parameters and momentum written.
    assert moved(aten._fused_sgd_.default, pair(), pair(), pair(), **options) == 5 * 40
    assert (
        moved(aten._fused_sgd_.default, pair(), pair(), [], **{**options, "momentum": 0.0}) == 120
    )
    unscale = aten._amp_foreach_non_finite_check_and_unscale_.default
    assert moved(unscale, pair(), torch.zeros(1), ones(1)) == 80 + 8 + 4


def test_helpers_write_their_arguments():
    values, indices = ones(4, 8), torch.zeros(4, 8, dtype=torch.int64)
    assert moved(aten._cummax_helper.default, A, values, indices, 1) == 128 + 128 + 256
    rows = places(5, 6)
    renormalised = moved(aten.embedding_renorm_.default, ones(100, 8), rows, 1.0, 2.0)
    assert renormalised == 16 + 2 * 64


def test_training_batch_norm_writes_its_running_statistics():
    x = ones(2, 3, 4)  # 96 bytes
    running = (torch.zeros(3), ones(3))
    call = (x, ones(3), ones(3), *running)
    # Input, four vectors of channels, output, and two saved statistics.
    evaluation = 96 + 4 * 12 + 96
    assert moved(aten.native_batch_norm.default, *call, False, 0.1, 1e-5) == evaluation
    training = evaluation + 2 * 12 + 2 * 12
    assert moved(aten.native_batch_norm.default, *call, True, 0.1, 1e-5) == training


def test_sparse_and_nested_tensors():
    sparse = torch.eye(4).to_sparse()  # four values, and two indices for each
    assert touched(sparse) == 4 * 4 + 2 * 4 * 8
    assert touched(torch.eye(4).to_sparse_csr()) == 4 * 4 + 5 * 8 + 4 * 8
    nested = torch.nested.nested_tensor([ones(2, 3), ones(1, 3)])
    assert touched(nested) == 36
    assert touched(torch.quantize_per_tensor(A, 0.1, 0, torch.qint8)) == 32


def test_descriptions_count_like_the_tensors_they_describe():
    assert touched(Described((4, 8))) == 128
    assert touched(Described((1000, 8), "float32", (0, 1))) == 32
    assert touched(Described((4, 0))) == 0
    both = (Described((4, 8)), Described((8,)))
    assert bytes_of("aten::add", both, {}, Described((4, 8))) == 128 + 32 + 128


def test_empty_tensors_and_numbers_move_nothing():
    assert touched(torch.empty(0, 5)) == 0
    assert touched(torch.empty(0, 5).expand(3, 0, 5)) == 0
    assert touched([1, None, "reflect", torch.float32, torch.device("cpu")]) == 0


def test_every_operator_that_returns_nothing_says_what_it_writes():
    silent = set()
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        if full.startswith("aten::"):
            schema = getattr(getattr(aten, name), overload or "default")._schema
            writes = any(one.alias_info and one.alias_info.is_write for one in schema.arguments)
            if writes and not schema.returns and "out" not in overload:
                silent.add(schema.name)
    assert len(silent) > 40
    assert sorted(silent - set(_RULES)) == []
