"""The kind of each ONNX operator by its name: the table from ONNX operators to formulas.

`ELEMENTWISE` and `REDUCED` name the torch operator that does the same, or how many operations each
element takes; `MOVING` and `STILL` do no arithmetic. All others have a formula of their own in
`families/onnx.py` and `families/onnx_contrib.py`, or are unknown.
"""

from __future__ import annotations


def _names(text: str, domain: str = "onnx") -> tuple[str, ...]:
    return tuple(f"{domain}::{name}" for name in text.split())


# Operations per output element.
ELEMENTWISE: dict[str, int] = {
    **dict.fromkeys(
        _names(
            """
            Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr
            BitwiseXor Ceil Celu Clip Cos Cosh DequantizeLinear Div Elu Equal Erf Exp Floor Gelu
            Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less LessOrEqual Log
            Mish Mod Mul Neg Not Or PRelu Pow QuantizeLinear Reciprocal Relu Round Selu Shrink
            Sigmoid Sign Sin Sinh Softplus Sqrt Sub Swish Tan Tanh ThresholdedRelu Xor
            """
        ),
        1,
    ),
    **dict.fromkeys(_names("SwiGLU"), 2),
    **dict.fromkeys(_names("DynamicQuantizeLinear Softsign"), 3),
    **dict.fromkeys(_names("RotaryEmbedding"), 3),
    **dict.fromkeys(_names("Binarizer Imputer", "ai.onnx.ml"), 1),
    **dict.fromkeys(_names("Scaler", "ai.onnx.ml"), 2),
    **dict.fromkeys(_names("Normalizer", "ai.onnx.ml"), 3),
    **dict.fromkeys(
        _names(
            """
            BiasAdd DequantizeLinear Gelu QLinearAdd QLinearLeakyRelu QLinearMul QLinearSigmoid
            QuantizeLinear QuickGelu
            """,
            "com.microsoft",
        ),
        1,
    ),
    **dict.fromkeys(_names("BiasGelu BiasSplitGelu", "com.microsoft"), 2),
    **dict.fromkeys(_names("RotaryEmbedding", "com.microsoft"), 3),
    **dict.fromkeys(_names("QLinearSoftmax", "com.microsoft"), 5),
    **dict.fromkeys(_names("BiasSoftmax", "com.microsoft"), 6),
}

# Operations per element of the first input.
REDUCED: dict[str, int] = {
    **dict.fromkeys(
        _names(
            """
            ArgMax ArgMin CumProd CumSum GlobalAveragePool GlobalMaxPool ReduceL2 ReduceLogSum
            ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
            """
        ),
        1,
    ),
    **dict.fromkeys(_names("GlobalLpPool ReduceL1 ReduceSumSquare"), 2),
    **dict.fromkeys(_names("Hardmax LpNormalization"), 3),
    **dict.fromkeys(_names("ReduceLogSumExp"), 4),
    **dict.fromkeys(_names("LogSoftmax Softmax"), 5),
    **dict.fromkeys(_names("InstanceNormalization"), 8),
    **dict.fromkeys(_names("MeanVarianceNormalization"), 6),
    **dict.fromkeys(_names("QLinearGlobalAveragePool QLinearReduceMean", "com.microsoft"), 1),
}

# Copies and look-ups: bytes and no arithmetic.
MOVING = frozenset(
    (
        *_names(
            """
            Bernoulli BitCast Cast CastLike CenterCropPad Compress Concat ConcatFromSequence
            DepthToSpace Expand EyeLike Gather GatherElements GatherND MaxUnpool Multinomial
            NonZero OneHot Pad RandomNormal RandomNormalLike RandomUniform RandomUniformLike
            ReverseSequence Slice SpaceToDepth Split SplitToSequence TensorScatter Tile Transpose
            Trilu Where
            """
        ),
        *_names(
            """
            ArrayFeatureExtractor CastMap CategoryMapper DictVectorizer FeatureVectorizer
            LabelEncoder OneHotEncoder ZipMap
            """,
            "ai.onnx.ml",
        ),
        *_names("ExpandDims Pad QLinearConcat QLinearWhere Trilu UnfoldTensor", "com.microsoft"),
        *_names("MemcpyFromHost MemcpyToHost"),  # which ONNX Runtime adds
        *_names("ReorderInput ReorderOutput", "com.microsoft.nchwc"),
    )
)

# What has a buffer of its own only by chance, and values that come from nowhere.
STILL = frozenset(
    (
        *_names(
            """
            BlackmanWindow Constant ConstantOfShape Dropout Flatten HammingWindow HannWindow
            Identity Optional OptionalGetElement OptionalHasElement Range Reshape SequenceAt
            SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength Shape Size
            Squeeze Unsqueeze
            """
        ),
    )
)

# Only what comes out is read of the first input.
GATHERING = frozenset(
    (
        *_names("Compress Gather GatherElements GatherND Slice"),
        *_names("ArrayFeatureExtractor", "ai.onnx.ml"),
    )
)

# The subgraphs of these have the work.
CONTAINERS = frozenset(_names("If Loop Scan SequenceMap"))
