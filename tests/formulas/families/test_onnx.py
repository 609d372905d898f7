"""Work of ONNX operators against counts by hand."""

from __future__ import annotations

import onnx
import pytest

from torchgauge.formulas import registry
from torchgauge.formulas.onnx_kinds import ELEMENTWISE, MOVING, REDUCED, STILL
from torchgauge.formulas.operand import Described, Work, touched
from torchgauge.formulas.traffic import bytes_of

MS = "com.microsoft::"
X = (2, 3, 4)
ATTENTION = 2 * 4 * 5 * 5 * 16  # b · h · s² · (d + d) multiply-accumulates, d = 8
SOFTMAX = 6 * 2 * 4 * 5 * 5
# Unknown on purpose: no arithmetic of tensors, or none that is agreed; of those that return as many
# as values decide, not even the bytes would be known.
UNKNOWN = {
    *("NonMaxSuppression", "Unique"),
    *("CausalConvWithState", "ImageDecoder", "LinearAttention", "MaxRoiPool", "MelWeightMatrix"),
    *("NegativeLogLikelihoodLoss", "RegexFullMatch", "STFT", "SoftmaxCrossEntropyLoss"),
    *("StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
}


def work(operator: str, inputs: list, outputs: list, **attributes) -> Work:
    registered = registry.find(operator)
    assert registered is not None
    function, wants_outputs = registered
    operands = [None if shape is None else Described(shape) for shape in inputs]
    results = tuple(map(Described, outputs))
    if wants_outputs:
        attributes["outputs"] = results[0] if len(results) == 1 else results
    return registry.as_work(function(*operands, **attributes))


@pytest.mark.parametrize(
    ("operator", "inputs", "outputs", "attributes", "macs", "vector"),
    [
        ("onnx::Conv", [(2, 4, 9, 9), (8, 2, 3, 3)], [(2, 8, 7, 7)], {"group": 2}, 14112, 0),
        (MS + "FusedConv", [(2, 4, 9, 9), (8, 4, 3, 3), (8,)], [(2, 8, 7, 7)],
         {"activation": "Relu"}, 28224, 0),
        ("onnx::ConvTranspose", [(2, 4, 5, 5), (4, 6, 3, 3)], [(2, 6, 11, 11)], {}, 10800, 0),
        ("onnx::Gemm", [(7, 5), (7, 3), (3,)], [(5, 3)], {"transA": 1}, 105, 0),
        ("onnx::MatMul", [(2, 3, 4), (4, 5)], [(2, 3, 5)], {}, 120, 0),
        (MS + "FusedMatMul", [(2, 4, 3), (4, 5)], [(2, 3, 5)], {"transA": 1}, 120, 0),
        (MS + "MatMulNBits", [(2, 3, 32), (5, 1, 16)], [(2, 3, 5)], {"K": 32, "N": 5}, 960, 0),
        ("onnx::Einsum", [(2, 3, 4), (2, 5, 4)], [(2, 3, 5)], {"equation": "bij, bkj -> bik"},
         120, 0),
        ("onnx::Einsum", [(6, 2, 3), (3, 4)], [(6, 2, 4)], {"equation": "...ij,jk->...ik"}, 144, 0),
        ("onnx::Einsum", [(2, 3, 4)], [(2, 4, 3)], {"equation": "bij->bji"}, 0, 0),
        ("onnx::Einsum", [(2, 3, 4)], [(2, 3)], {"equation": "bij->bi"}, 0, 24),
        ("onnx::Einsum", [(3, 3)], [()], {"equation": "ii"}, 0, 9),
        ("onnx::Attention", [(2, 5, 32)] * 3, [(2, 5, 32)],
         {"q_num_heads": 4, "kv_num_heads": 4}, ATTENTION, SOFTMAX),
        ("onnx::Attention", [(2, 4, 5, 8)] * 3, [(2, 4, 5, 8)], {}, ATTENTION, SOFTMAX),
        (MS + "MultiHeadAttention", [(2, 5, 32)] * 3, [(2, 5, 32)], {"num_heads": 4},
         ATTENTION, SOFTMAX),
        (MS + "MultiHeadAttention", [(2, 5, 4, 3, 8)], [(2, 5, 32)], {"num_heads": 4},
         ATTENTION, SOFTMAX),
        (MS + "Attention", [(2, 5, 32), (32, 96), (96,)], [(2, 5, 32)], {"num_heads": 4},
         ATTENTION + 10 * 32 * 96, SOFTMAX),
        (MS + "GroupQueryAttention", [(2, 5, 32), (2, 5, 16), (2, 5, 16)], [(2, 5, 32)],
         {"num_heads": 4, "kv_num_heads": 2}, ATTENTION, SOFTMAX),
        (MS + "SkipLayerNormalization", [X, X, (4,), (4,), (4,)], [X], {}, 0, 24 * 10),
        (MS + "SkipSimplifiedLayerNormalization", [X, X, (4,)], [X], {}, 0, 24 * 5),
        ("onnx::LayerNormalization", [X, (4,), (4,)], [X], {}, 0, 24 * 8),
        ("onnx::RMSNormalization", [X, (4,)], [X], {}, 0, 24 * 4),
        ("onnx::BatchNormalization", [X, (3,), (3,), (3,), (3,)], [X], {}, 0, 24 * 4),
        (MS + "BiasGelu", [X, (4,)], [X], {}, 0, 48),
        (MS + "FastGelu", [X, (4,)], [X], {}, 0, 48),
        (MS + "DynamicQuantizeMatMul", [X, (4, 5), (1,)], [(2, 3, 5)], {}, 120, 72),
        ("onnx::Softmax", [X], [X], {"axis": -1}, 0, 24 * 5),
        ("onnx::MaxPool", [(1, 2, 8, 8)], [(1, 2, 4, 4)], {"kernel_shape": (2, 2)}, 0, 128),
        ("onnx::GlobalAveragePool", [(1, 2, 8, 8)], [(1, 2, 1, 1)], {}, 0, 128),
        ("onnx::LSTM", [(3, 5, 8), (2, 64, 8), (2, 64, 16)], [(3, 2, 5, 16)], {}, 15 * 2 * 64 * 24,
         17 * 15 * 2 * 16),
        (MS + "DynamicQuantizeLSTM", [(3, 5, 8), (2, 8, 64), (2, 16, 64)], [(3, 2, 5, 16)], {},
         15 * 2 * 64 * 24, 17 * 15 * 2 * 16),
        (MS + "DecoderMaskedMultiHeadAttention", [(2, 1, 96), *[None] * 4, (2, 4, 7, 8)],
         [(2, 1, 32)], {"num_heads": 4}, 2 * 4 * 8 * 16, 6 * 2 * 4 * 8),
        ("onnx::Resize", [(1, 2, 4, 4)], [(1, 2, 8, 8)], {"mode": "linear"}, 0, 128 * 8),
        ("onnx::Resize", [(1, 2, 4, 4)], [(1, 2, 8, 8)], {"mode": "nearest"}, 0, 0),
        ("onnx::Sum", [X, X, X], [X], {}, 0, 48),
        ("onnx::ScatterND", [X, (2, 1), (2, 3, 4)], [X], {"reduction": "add"}, 0, 24),
        ("ai.onnx.ml::LinearClassifier", [(6, 4)], [(6,), (6, 3)], {}, 72, 0),
        ("onnx::Transpose", [X], [(4, 3, 2)], {"perm": (2, 1, 0)}, 0, 0),
    ],
)  # fmt: skip
def test_by_hand(operator, inputs, outputs, attributes, macs, vector):
    result = work(operator, inputs, outputs, **attributes)
    assert (result.matmul, result.vector) == (2 * macs, vector)


def test_a_causal_attention_has_its_triangle():
    shapes = [(2, 5, 32)] * 3
    result = work(MS + "MultiHeadAttention", shapes, [(2, 5, 32)], num_heads=4, unidirectional=1)
    assert (result.matmul, result.causal) == (2 * ATTENTION, 2 * ATTENTION * 15 // 25)


def test_integers_are_no_flops():
    image, kernel = Described((1, 2, 4, 4), "uint8"), Described((3, 2, 1, 1), "int8")
    function, _ = registry.find("onnx::QLinearConv")
    result = function(image, None, None, kernel, outputs=Described((1, 3, 4, 4), "uint8"))
    assert result == Work(integer=2 * 96)


def test_a_quantised_layer_multiplies_integers():
    function, _ = registry.find(MS + "DynamicQuantizeLSTM")
    weights = (Described((1, 8, 64), "int8"), Described((1, 16, 64), "int8"))
    done = registry.as_work(function(Described((3, 5, 8)), *weights))
    assert (done.matmul, done.integer) == (0, 2 * 15 * (8 + 16) * 64)
    assert done.vector > 0


def test_every_operator_is_known_or_unknown_on_purpose():
    schemas = onnx.defs.get_all_schemas_with_history()
    names = {schema.name for schema in schemas if schema.domain == ""}
    assert {name for name in names if registry.find(f"onnx::{name}") is None} == UNKNOWN


def test_the_table_names_no_operator_twice():
    tables = [set(ELEMENTWISE), set(REDUCED), MOVING, STILL]
    assert sum(map(len, tables)) == len(set().union(*tables))


def test_bytes():
    x = Described((4, 8))
    assert bytes_of("onnx::Reshape", (x,), {}, x) == 0
    assert bytes_of("onnx::Transpose", (x,), {}, x) == 2 * 128
    rows = Described((3,), "int64", (), 8)
    assert bytes_of("onnx::Gather", (x, rows), {}, Described((3, 8))) == 2 * 96 + 24


TABLE, HIDDEN, IDS = Described((100, 4)), Described((2, 5, 32)), Described((2, 5), "int32")


@pytest.mark.parametrize(
    ("operator", "inputs", "rows", "others"),
    [
        ("onnx::RotaryEmbedding", [HIDDEN, TABLE, TABLE, IDS], 2 * 10, [HIDDEN, IDS]),
        (MS + "RotaryEmbedding", [HIDDEN, Described((1,)), TABLE, TABLE], 2 * 5,
         [HIDDEN, Described((1,))]),
        (MS + "RotaryEmbedding", [HIDDEN, IDS, Described((3, 4)), TABLE], 3 + 10, [HIDDEN, IDS]),
        (MS + "GroupQueryAttention", [HIDDEN, *[None] * 6, TABLE, TABLE], 2 * 10, [HIDDEN]),
        (MS + "EmbedLayerNormalization", [IDS, None, TABLE, TABLE, Described((2, 4))], 10 + 5 + 2,
         [IDS]),
    ],
)  # fmt: skip
def test_of_tables_the_rows_that_are_looked_up_are_read(operator, inputs, rows, others):
    expected = rows * 16 + sum(map(touched, others)) + touched(HIDDEN)
    assert bytes_of(operator, tuple(inputs), {}, HIDDEN) == expected
