"""The category of a kernel or operator, by the name that a recording has for it.

Names are those of torch's own kernels, cuBLAS, cuDNN, CUTLASS, rocBLAS, MIOpen, Composable Kernel,
Triton, XLA and the libraries of inference servers. A kernel of which only a part is said by its
name has the category of that part: a convolution that cuDNN computes as products is a "matrix
product" here, and a "convolution" by its operator.
"""

from __future__ import annotations

import functools
import re
from typing import Literal, get_args

from torchgauge.analyze.communication.communication_kernels import collective_of
from torchgauge.formulas import free, registry
from torchgauge.formulas.kinds import kernel_kind

Category = Literal[
    "matrix product",
    "convolution",
    "attention",
    "softmax",
    "normalisation",  # of batches, layers, groups; root mean square
    "elementwise",  # one operation per element, quantisation and rotary positions among them
    "reduction",  # scans too
    "loss",
    "pooling",  # resampling and regions of images too
    "recurrent",
    "embedding",  # and all else that picks or puts values by position: gather, scatter, masks
    "sort",
    "random",  # dropout too
    "linear algebra",  # decompositions, solvers, Fourier transforms
    "optimizer",  # all kernels over lists of tensors too
    "layout",  # transposes, concatenations, padding
    "copy",  # to another device, type or memory
    "fill",
    "communication",
    "view",  # nothing runs: views, shapes, allocations
    "compiled graph",  # what the call of one does on the host beside the kernels in it
    "other",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)

COMPILED_GRAPH = "## Call CompiledFxGraph"  # how a recording names the call; a hash follows
LONGEST_READ = 500  # characters; the operation stands before the arguments

# In this order: what a library's name says of the whole kernel before what its arguments say.
_KERNELS: tuple[tuple[Category, str], ...] = (
    ("copy", r"^memcpy|reshape_and_cache|kv_?cache_(?:copy|store)|copyBuffer"),
    ("fill", r"^memset|FillFunctor|fillBuffer|arange_|^fill_"),
    ("communication", r"^_?c10d|record_param_comms|all_?reduce|all_?gather|all_?to_?all"),
    ("elementwise", r"rotary|(?<![a-z])rope(?![a-z])|act_and_mul|_quant(?:ize)?_"),
    ("embedding", r"split_embedding|SplitLookupFunction"),
    (
        "attention",
        r"flash_(?:fwd|bwd|attn)|FlashAttn|fmha|attention|(?<![a-z])attn|sdpa|(?<![a-z])mha"
        r"|(?:Prefill|Decode)With|paged_?kv|flash_?mla|flash::",
    ),
    (
        "normalisation",
        r"(?:batch|layer|group|instance|rms|l2)_?norm|cudnn::bn_|(?<![a-z])[bl]n_(?:fwd|bwd|fw|bw)"
        r"|GammaBeta|RowwiseMoments|ComputeInternalGradients",
    ),
    ("loss", r"cross_?entropy|_loss(?![a-z])"),
    ("softmax", r"softmax"),
    (
        "convolution",
        r"conv(?!er)|dgrad|wgrad|fprop|scudnn|[hs]\d+cudnn|winograd|igemm_(?:fwd|bwd|wrw)|im2col"
        r"|col2im|depthwise|cudnn::cnn|cask_cudnn|scalePackedTensor",
    ),
    ("optimizer", r"multi_tensor_apply|(?<!h)adam|adagrad_|fused_sgd|optimizer|(?<![a-z])lamb_"),
    (
        "random",
        r"dropout|distribution_|philox|curand|bernoulli|multinomial|randperm|(?<![a-z])sampling",
    ),
    ("recurrent", r"RNN|lstm|(?<![a-z])gru(?![a-z])|selective_scan|mamba"),
    ("pooling", r"(?:max|avg|average)_?pool|upsampl|interpolat|grid_?sampl|roi_|(?<![a-z])nms"),
    ("linear algebra", r"(?<![a-z])fft|_fft|cufft|rocfft|getr[fs]|potr[fs]|geqrf|syev|trsm|gesv"),
    (
        "matrix product",
        r"(?<!fb)gemm|gemv|matmul|nvjet|Cijk_|splitKreduce|cublas|cutlass|hipblaslt|rocblas|dot_kernel"
        r"|xmma|marlin|fused_moe_kernel|(?<![a-z])(?:add|b|baddb|fused_)?mm(?![a-z])"
        r"|mmBackward|epilogue::impl::globalKernel|:linear(?![a-z])|LinearBackward",
    ),
    ("sort", r"sort|topk|unique|histogram|bincount"),
    (
        "embedding",
        r"embedding|pooled_embs|index_?select|index_?(?:elementwise|put|add|copy|fill|func)"
        r"|indexing_backward|gpu_index_kernel|gather|scatter|nonzero|compact|DeviceSelect"
        r"|masked_(?:scatter|select)|compute_grad_weight|krn_partial|linearize_index"
        r"|moe_align|bounds_check",
    ),
    (
        "layout",
        r"nchw|nhwc|transpose|permute|CatArray|concat|flip_kernel|roll_cuda|pad_\w{0,30}kernel|padding"
        r"|repack|recat_copy",
    ),
    ("copy", r"copy_kernel|_copy_|(?<![a-z])copy|CastTensor|ConvertFunctor"),
    ("elementwise", r"elementwise|element_wise|pointwise|SubTensorOp|OpTensor|triu_tril|tensor_op"),
    ("reduction", r"reduce|reduction|(?:cum)?sum(?![a-z])|scan|argm(?:ax|in)|(?<![a-z])mean"),
    ("fill", r"zero|fill|(?<![a-z])iota"),
    (
        "elementwise",
        r"(?<![a-z])(?:swiglu|silu|gelu|relu|sigmoid|tanh|add|sub|mul|div|cast|quant\w*|activation"
        r"|convert|multiply|subtract|divide|select|compare|(?:Mul|Add|Div|Sub|Pow)Backward)"
        r"(?![a-z])|(?:silu|gelu|relu|sigmoid|tanh)_?(?:kernel|and|backward)",
    ),
)
# Of lower-case names, which are searched twice as fast as by patterns that ignore case.
_PATTERNS = [(name, re.compile(pattern.lower())) for name, pattern in _KERNELS]

# Kernels that torch's compiler writes: of single elements, of whole rows, from a template.
_INDUCTOR = re.compile(r"triton_(poi|red|per|tem|for|mm|cat)_|cpp_fused_")
_FUSED: dict[str | None, Category] = {
    "poi": "elementwise",
    "red": "reduction",
    "per": "reduction",
    "for": "optimizer",
    None: "elementwise",  # loops of the CPU
}
_IN_FUSED: tuple[Category, ...] = (
    "attention", "normalisation", "loss", "softmax", "convolution", "matrix product"
)  # fmt: skip
# As torch's compiler names graphs and code (a letter, then base 32), and in base 16.
_HASH = re.compile(r"(?<![a-z0-9])(?:[a-z][a-z2-7]{51}|[0-9a-f]{32,64})(?![a-z0-9])")
_OPERATOR = re.compile(r"\w+::\w+(?:\.\w+)?")  # namespace, name, overload

# The folders of formulas are named after families of operators.
_FAMILIES: dict[str, Category] = {
    "activation": "elementwise",
    "attention": "attention",
    "convolution": "convolution",
    "distance": "reduction",
    "embedding": "embedding",
    "fourier": "linear algebra",
    "interpolation": "pooling",
    "linear_algebra": "linear algebra",
    "loss": "loss",
    "matmul": "matrix product",
    "normalization": "normalisation",
    "optimizer": "optimizer",
    "pooling": "pooling",
    "quantization": "elementwise",
    "recurrent": "recurrent",
    "quantized_recurrent": "recurrent",
    "softmax": "softmax",
    "sparse": "matrix product",
    "transformer": "attention",
}
_BY_KIND: dict[str, Category] = {
    "pointwise": "elementwise",
    "reduction": "reduction",
    "lists": "optimizer",
}


_LAYOUTS = free.aten(
    """
    cat stack _stack _chunk_cat block_diag repeat roll rot90 flip pixel_shuffle pixel_unshuffle
    channel_shuffle native_channel_shuffle constant_pad_nd reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pad contiguous concat
    concatenate hstack vstack
    """
)
_COPIES = frozenset({"aten::to", "aten::pin_memory", "aten::item", "aten::type_as"})
_VIEWS = free.aten(
    """
    broadcast_tensors broadcast_to chunk flatten unflatten narrow reshape reshape_as resolve_conj
    resolve_neg result_type expand_as movedim moveaxis numpy_T ravel size tensor_split
    unflatten_dense_tensors
    """
)
_FILLS = free.aten(
    """
    fill zero zeros ones full zeros_like ones_like full_like arange linspace eye new_zeros new_ones
    new_full scalar_tensor
    """
)


@functools.lru_cache(8192)
def category(name: str) -> Category:
    """Return the category of a kernel, copy or operator; "other" where its name says none."""
    name = name[:LONGEST_READ]
    if name.startswith(COMPILED_GRAPH):
        return "compiled graph"
    if _OPERATOR.fullmatch(name):
        of_operator = _operator_category(name.partition(".")[0])
        if of_operator is not None:
            return of_operator
    if collective_of(name) is not None:
        return "communication"
    generated = _INDUCTOR.search(name)
    if generated is not None:
        return _generated_category(name, generated[1])
    return _by_words(name)


def _operator_category(name: str) -> Category | None:
    """Return the category of an operator without its overload; None where nothing knows it."""
    forms = (name, name.removesuffix("_"), name.removesuffix("_out"))
    for operators, of_operators in _OPERATORS:
        if any(form in operators for form in forms):
            return of_operators
    for form in forms:
        registered = registry.find(form)
        family = "" if registered is None else registered[0].__module__
        if family.startswith(registry.FAMILIES):
            return _FAMILIES.get(family.rpartition(".")[2]) or _by_words(name)
    return _BY_KIND.get(kernel_kind(name))


_OPERATORS: tuple[tuple[frozenset[str], Category], ...] = (
    (_LAYOUTS, "layout"),
    (_FILLS, "fill"),
    (_COPIES, "copy"),
    (_VIEWS, "view"),
    (free.RANDOM | {"aten::native_dropout"}, "random"),
    (free.INDEXING, "embedding"),
    (free.STILL, "view"),
    (free.COPIES, "copy"),
    (free.FOREACH, "optimizer"),
)


def _generated_category(name: str, kind: str | None) -> Category:
    """Return the category of a kernel of torch's compiler, named after all that it fuses.

    Pointwise kernels are that, whatever part of a normalisation they do.
    """
    of_kind = _FUSED.get(kind)
    if kind in ("poi", "for"):
        return _FUSED[kind]
    by_words = _by_words(name[name.find("_", 7) :] if kind else name)
    return by_words if of_kind is None or by_words in _IN_FUSED else of_kind


def _by_words(name: str) -> Category:
    lower = _HASH.sub("", name.lower())
    for of_pattern, pattern in _PATTERNS:
        if pattern.search(lower):
            return of_pattern
    return "other"
