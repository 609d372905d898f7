"""Parameters and bytes that an ONNX file holds.

ONNX has initializers alone, or constants in their place. A parameter is one that is named as a
parameter, or that an operator takes where it takes weights; running statistics and other constants
are what torch calls buffers.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict

from torchgauge.formulas.kinds import kind
from torchgauge.records.onnx.graph import Graph, Initializer, TensorType
from torchgauge.records.work.size import DtypeSize, Size

# Names of buffers in state dicts of well-known modules.
_BUFFERS = """
    attn_mask inv_freq masked_bias num_batches_tracked original_inv_freq position_ids
    relative_position_index running_mean running_var token_type_ids
"""
# Names that exporters make up: `val_40`, `onnx::Conv_193`, `/layer/Constant_output_0`, `312`.
_MADE_UP = re.compile(r"val_\d+|onnx::.*|\d+|(?:_?tensor_constant|lifted_tensor_)\d+")
_FOLDED_BIAS = (
    "weight_bias"  # of a convolution into which the dynamo exporter folds a normalisation
)
_NUMBERED = re.compile(r"_\d+\Z")
# Where an operator takes weights, by the positions of its inputs.
_WEIGHTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv", "NhwcFusedConv", "Gemm", "FusedGemm",
                     "LayerNormalization", "GroupNormalization", "InstanceNormalization",
                     "BatchNormalization", "RMSNormalization", "SimplifiedLayerNormalization",
                     "Attention", "BiasGelu", "FastGelu", "BiasAdd"), (1, 2)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (1, 2, 3, 7)),
    **dict.fromkeys(("MatMul", "FusedMatMul", "Einsum"), (0, 1)),
    **dict.fromkeys(("Gather", "GatherND", "Upsample"), (0,)),
    **dict.fromkeys(("PRelu", "MatMulNBits", "MatMulBnb4", "ConvInteger", "MatMulInteger"), (1,)),
    "DynamicQuantizeMatMul": (1, 4),
    "MatMulIntegerToFloat": (1, 6),
    "QGemm": (3, 6),
    "DynamicQuantizeLSTM": (1, 2, 3, 7),
    "QAttention": (1, 2),
    "GatherBlockQuantized": (0,),
    "QMoE": (2, 4, 5, 7, 8, 10),
    "QEmbedLayerNormalization": (2, 3, 4, 5, 6),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul"), (3, 8)),
    "DeformConv": (1, 3),
    "SkipLayerNormalization": (2, 3, 4),
    "SkipSimplifiedLayerNormalization": (2, 3),
    "EmbedLayerNormalization": (2, 3, 4, 5, 6),
    "MultiHeadAttention": (3,),
    "DequantizeLinear": (0,),
}  # fmt: skip
# Where it takes running statistics, scales (those of a resizing among them), and zero points.
_NO_WEIGHTS: dict[str, tuple[int, ...]] = {
    "BatchNormalization": (3, 4),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), (1, 2)),
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4", "DynamicQuantizeMatMul"), (2, 3)),
    "MatMulIntegerToFloat": (2, 3, 4, 5),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul"),
                    (1, 2, 4, 5, 6, 7)),
    "Resize": (1, 2),
    "Upsample": (1,),
    "QGemm": (1, 2, 4, 5, 7, 8),
    "DynamicQuantizeLSTM": (8, 9, 10, 11),
    "QAttention": (3, 4, 6, 7),
    "GatherBlockQuantized": (2, 3),
    "QMoE": (3, 6, 9, 11, 12, 13, *range(15, 21)),
    "QEmbedLayerNormalization": tuple(range(8, 18)),
}  # fmt: skip
# Weights of which several are in one byte, by position, with the attribute that has their bits.
_BITS = {
    "GatherBlockQuantized": {0: "bits"},
    "QMoE": {position: f"fc{(position + 1) // 3}_expert_weight_bits" for position in (2, 5, 8)},
}
_USUAL_BITS = 4
_GATHERS = ("Gather", "GatherND")  # of a table, or of indices
_LARGEST_SIZE = 2**31
# A bias that an exporter adds by itself, a scale, a class token: one value for each channel.
_BY_CHANNEL = ("Add", "Mul", "Sub", "Div", "Concat")
_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "float64"}
_QUANTISED = ("int8", "uint8", "int4", "uint4", "int2", "uint2", "int32")


def graph_size(graph: Graph) -> Size | None:
    """Count what the file stores: each stored tensor once, however often it is used.

    None where the parameters are not known.
    """
    if not knows_parameters(graph):
        return None
    parameters = _parameters(graph)
    by_dtype: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    sums = {True: [0, 0], False: [0, 0]}
    for number, tensor in enumerate(graph.initializers):
        if tensor.shared:
            continue
        for entry in (sums[number in parameters], by_dtype[tensor.dtype or "unknown"]):
            entry[0] += parameters.get(number, math.prod(tensor.shape))
            entry[1] += tensor.bytes
    return Size(
        parameters=sums[True][0],
        trainable=0,
        buffers=sums[False][0],
        parameter_bytes=sums[True][1],
        buffer_bytes=sums[False][1],
        by_dtype={name: DtypeSize(elements=e, bytes=b) for name, (e, b) in by_dtype.items()},
        disk_bytes=graph.file_bytes,
        disk_source=", ".join(graph.files),
    )


def knows_parameters(graph: Graph) -> bool:
    """Return whether parameters are marked among constants, as a program's record does it."""
    return graph.format == "onnx" or any(tensor.parameter for tensor in graph.initializers)


def floating_precision(graph: Graph) -> str:
    """Return the floating type of most bytes that the file stores, else of its inputs."""
    sizes: Counter[str] = Counter()
    for tensor in graph.initializers:
        sizes[tensor.dtype] += tensor.bytes
    for name in graph.inputs:
        sizes[graph.values[name].dtype] += 0
    types = [name for name, _ in sizes.most_common() if name in _PRECISIONS]
    return _PRECISIONS[types[0]] if types else "unknown"


def parameter_elements(graph: Graph) -> dict[str, int]:
    """Return the elements of each parameter by its name; of several at one place the first.

    Those of one name, in the branches of an If, are together.
    """
    elements: Counter[str] = Counter()
    for number, count in _parameters(graph).items():
        elements[graph.initializers[number].name] += count
    return elements


def _parameters(graph: Graph) -> dict[int, int]:
    """Return the elements of each parameter by its number among what is stored."""
    weights, not_weights = _read_at(graph, _WEIGHTS), _read_at(graph, _NO_WEIGHTS)
    unpacked = _unpacked(graph)
    return {
        number: unpacked.get(tensor.name, math.prod(tensor.shape))
        for number, tensor in enumerate(graph.initializers)
        if not tensor.shared
        and tensor.name not in not_weights
        and is_parameter(tensor, is_weight=tensor.name in weights)
    }


def _unpacked(graph: Graph) -> dict[str, int]:
    """Return how many elements are in each weight that stores several in one byte."""
    elements: dict[str, int] = {}
    for node in graph.nodes:
        sizes = [node.attributes.get(name) for name in "NK"]
        if node.operator in ("MatMulNBits", "MatMulBnb4") and all(map(_is_size, sizes)):
            elements.update(dict.fromkeys(node.inputs[1:2], math.prod(sizes)))  # type: ignore[arg-type]
        usual = node.attributes.get("expert_weight_bits", _USUAL_BITS)
        for position, name in _BITS.get(node.operator, {}).items():
            bits = node.attributes.get(name, usual)
            stored = node.input_types[position] if position < len(node.inputs) else TensorType()
            count = stored.elements if stored.dtype == "uint8" else None
            if count is not None and isinstance(bits, int) and bits > 0:
                elements[node.inputs[position]] = count * 8 // bits
    return elements


def _is_size(value: object) -> bool:
    return isinstance(value, int) and 0 < value < _LARGEST_SIZE


def made_elements(graph: Graph) -> int:
    """Return the elements of parameters that the exporter named, since it computed their values.

    It transposes weights, and multiplies those of a convolution with a normalisation after it.
    """
    stored = parameter_elements(graph).items()
    return sum(
        elements for name, elements in stored if made_up(name) or name.endswith(_FOLDED_BIAS)
    )


def computed_convolutions(graph: Graph) -> int:
    """Return how many convolutions have weights that the exporter computed.

    Most took in the batch normalisation after them.
    """
    return sum(
        "batch_norm" in node.metadata.get("pkg.torch.onnx.class_hierarchy", "")
        or any(made_up(name) for name in node.inputs[1:2])
        for node in graph.nodes
        if node.operator in ("Conv", "ConvTranspose")
    )


def is_parameter(tensor: Initializer, *, is_weight: bool) -> bool:
    """Return whether a stored tensor is a parameter of the model."""
    if tensor.parameter is not None:
        return tensor.parameter
    last = tensor.name.rpartition(".")[2]
    if last in _BUFFERS.split():
        return False
    if not tensor.dtype.startswith(("float", "bfloat", "complex")):
        return is_weight and tensor.dtype in _QUANTISED
    # A single number without a module is a bound, a factor, an epsilon.
    is_number = "." not in tensor.name and math.prod(tensor.shape) == 1
    return not is_number and (is_weight or not made_up(tensor.name))


def made_up(name: str) -> bool:
    """Return whether an exporter made the name up, as that of a value that it computed."""
    if "/" in name or _MADE_UP.fullmatch(name):
        return True
    stem = _NUMBERED.sub("", name)
    return "." not in name and kind(f"aten::{stem}") != "unknown"


def _read_at(graph: Graph, positions: dict[str, tuple[int, ...]]) -> set[str]:
    """Return the initializers that operators read at these positions, of weights also vectors."""
    is_weights = positions is _WEIGHTS
    stored = {tensor.name: tensor for tensor in graph.initializers}
    # A vector in a Constant without a module's name is mostly a table that was computed.
    constants = {
        name for node in graph.nodes if node.operator == "Constant" for name in node.outputs
    }
    sources = {name: name for name in stored}
    for node in graph.nodes:
        if node.operator == "Identity" and node.outputs and node.inputs[:1]:
            sources[node.outputs[0]] = sources.get(node.inputs[0], "")
    dequantised = {
        name for node in graph.nodes if node.operator == "DequantizeLinear" for name in node.inputs
    }
    read: set[str] = set()
    for node in graph.nodes:
        for position, value in enumerate(node.inputs):
            name = sources.get(value, "")
            if name not in stored:
                continue
            is_floating = "float" in stored[name].dtype
            if position in positions.get(node.operator, ()):
                is_table = (
                    node.operator not in _GATHERS
                    or is_floating
                    or not dequantised.isdisjoint(node.outputs)
                    or (stored[name].dtype in ("int8", "uint8") and len(stored[name].shape) == 2)
                )
                read.update({name} if is_table else ())
            elif is_weights and node.operator in _BY_CHANNEL and is_floating:
                read.update({name} - constants if _is_vector(stored[name].shape) else ())
    return read


def _is_vector(shape: tuple[int, ...]) -> bool:
    """Return whether all but one dimension are 1."""
    return sum(size != 1 for size in shape) == 1
