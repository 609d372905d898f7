"""Short names of kernels: what they do, on which type, with which tile; template noise goes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

LONG_IDENTIFIER = 20  # shorter ones are namespaces
LONGEST_READ = 4_000  # characters; longer names are cut first

_NAMESPACES = re.compile(
    r"\(anonymous namespace\)::|\b(?:at|native|c10|std|cuda|detail|internal|binary_internal|"
    r"cutlass|cutlass_cudnn_train|cutlass_cudnn_infer|cudnn|ops|cub|cublasLt|pytorch_flash|"
    r"thrust|memory)::"
)
_LAMBDA = re.compile(r"\{lambda\(([^(){}]*)\)#\d+\}")
_DTYPES = {
    "BFloat16": "bf16", "bfloat16_t": "bf16", "__nv_bfloat16": "bf16",
    "Half": "fp16", "half_t": "fp16", "__half": "fp16",
    "float": "fp32", "double": "fp64", "long": "int64", "int": "int32",
    "short": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
    "tfloat32_t": "tf32", "Float8_e4m3fn": "fp8", "complex<float>": "complex64",
}  # fmt: skip
_DTYPE = re.compile(
    rf"\b(?:{'|'.join(map(re.escape, sorted(_DTYPES, key=len, reverse=True)))})(?!\w)"
)
# Wrappers of an elementwise operation, which is in their arguments.
_WRAPPER = re.compile(
    r"^(?:\w*elementwise_kernel\w*|reduce_kernel|elementwise_kernel_with_index|multi_tensor_apply_kernel|"
    r"Kernel2?|distribution_\w*kernel)$"
)
# The operation in a wrapper's arguments.
_OPERATION = re.compile(
    r"\b(?!gpu_kernel)(\w*(?:Functor\w*|Ops|_kernel_cuda|_kernel_impl|_impl|KernelImpl|_cuda_kernel\w*|launch_\w+|"
    r"CUDAFunctor\w*|ReduceSplitK))\b"
)
_COMMON = ("AUnaryFunctor", "BUnaryFunctor", "BinaryFunctor", "UnaryFunctor", "func_wrapper")
_TILE = re.compile(r"(?:tilesize|MT|_bt)(\d+)x(\d+)x?(\d*)")
_SUFFIXES = re.compile(
    r"_(?:warpgroupsize|warpsize)\w+?(?=_|$)|_execute(?:_segment_k_off)?(?:_kernel)?|_kernel_?(?=_|$)|"
    r"__5x_cublas|_cudnn_(?:infer|train)|_g1|_tensor16x8x\d+|_stage\d|_bias_\w+$"
)


def kernel_label(name: str) -> str:
    """Return a short name: the operation, the type of its elements, and the tile, where known."""
    name = name[:LONGEST_READ].removeprefix("void ").strip()
    if name.startswith("std::enable_if"):
        name = name.rpartition("::type ")[2] or name
    if name.startswith(("Memcpy", "Memset")):
        return name
    if name.startswith("_ZN"):
        return _mangled(name)
    if "<" not in name and "(" not in name:
        return _library(name)
    bare = _NAMESPACES.sub("", name)
    function, arguments = _split(bare)
    if not arguments:
        return _library(function)
    if _WRAPPER.search(function):
        return _wrapped(function, arguments)
    return _join(_operation_name(function), _type(arguments), _tile(arguments))


def kernel_labels(names: Sequence[str]) -> list[str]:
    """Return the names' labels; where two names have one, the names themselves."""
    labels = dict(zip(names, map(kernel_label, names), strict=True))
    shared = Counter(labels.values())
    return [labels[name] if shared[labels[name]] == 1 else name for name in names]


def _split(name: str) -> tuple[str, str]:
    """Return the function's own name, and what is in its template's brackets."""
    depth, begin = 0, -1
    for place, character in enumerate(name):
        if character == "<":
            begin = place if depth == 0 and begin < 0 else begin
            depth += 1
        elif character == ">" and name[place - 1] != "-":
            depth -= 1
            if depth == 0:
                return name[:begin].strip(), name[begin + 1 : place]
        elif character == "(" and depth == 0:
            return name[:place].strip(), ""
    return (name[:begin].strip(), name[begin + 1 :]) if begin >= 0 else (name, "")


def _wrapped(function: str, arguments: str) -> str:
    """Return the operation that an elementwise wrapper or a cutlass kernel is made for."""
    inner = arguments.split("<")[0].split(",")[0].strip()
    if function.endswith(("Kernel", "Kernel2")) and "::" not in inner:
        return _library(inner)
    operations = [
        operation for operation in _OPERATION.findall(arguments) if operation not in _COMMON
    ]
    width = re.match(r"\s*(\d+)\s*,", arguments)
    way = f" ×{width[1]}" if width and function.startswith("vectorized") else ""
    way = " strided" if function == "elementwise_kernel" else way
    # That of an index says nothing of the elements.
    lambdas = [kind for kind in _LAMBDA.findall(arguments) if kind.strip() not in ("", "int")]
    type_name = _type(lambdas[-1] if lambdas else _LAMBDA.sub("", arguments))
    if not operations:
        return _join(function, type_name)
    kind = "reduce " if function.startswith("reduce") else ""
    return _join(kind + _operation_name(operations[0]) + way, type_name)


def _operation_name(text: str) -> str:
    """Return an operation's name without what every one has."""
    last = text.rpartition("::")[2]
    if last in ("kernel", "Kernel"):
        last = "::".join(text.split("::")[-2:])
    for suffix in ("_kernel_cuda", "_cuda_kernel", "_kernel_impl", "KernelImpl", "CUDAKernelImpl"):
        last = last.removesuffix(suffix)
    for prefix in ("CUDAFunctor_", "CUDAFunctorOnSelf_", "CUDAFunctorOnOther_"):
        last = last.removeprefix(prefix)
    return last.removesuffix("Functor").removesuffix("CUDA") or last


def _type(arguments: str) -> str:
    """Return the first type of elements that arguments name."""
    match = _DTYPE.search(arguments)
    return "" if match is None else _DTYPES[match[0]]


def _tile(arguments: str) -> str:
    """Return the first three whole numbers that stand together, if they look like a tile."""
    match = re.search(r"\b(\d{2,3}), (\d{2,3}), (\d{2,3})\b", arguments)
    return "" if match is None else "×".join(match.groups())


def _mangled(name: str) -> str:
    """Return the first long identifier of a mangled name, and its first three numbers."""
    place, identifiers = 3, []
    while match := re.compile(r"[A-Z_]*?(\d+)(?=[A-Za-z_])").match(name, place):
        place = match.end() + int(match[1])
        identifiers.append(name[match.end() : place])
    long = next((text for text in identifiers if len(text) >= LONG_IDENTIFIER), None)
    numbers = re.findall(r"Li(\d+)E", name)[:3]
    return name if long is None else _join(long, "×".join(numbers))


def _library(name: str) -> str:
    """Return a library's or compiler's name without its settings, but with its tile."""
    tile = _TILE.search(name)
    if tile is None:
        return name
    head = _SUFFIXES.sub("", name[: tile.start()].rstrip("_"))
    if name.startswith("Cijk"):
        head = "_".join(head.split("_")[:4])
    types = re.sub(r"(bf16|f16|tf32f32|f32|i8)(?:\1)+", r"\1", head)
    tail = "split_k" if "split_k" in name else ""
    return _join(types, "", "×".join(filter(None, tile.groups())), tail)


def _join(*parts: str) -> str:
    return " ".join(filter(None, (part.strip() for part in parts)))
