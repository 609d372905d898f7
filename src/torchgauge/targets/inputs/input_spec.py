"""The grammar of --input: a shape, and where needed a name, a dtype and an upper bound.

    [NAME=]DxDxD[:DTYPE][<HIGH]

`1x3x224x224`, `input_ids=2x128:int64<50257`, `mask=2x128:bool`; `scale=:float32` has no dimension
and is a scalar. Without a name the input is positional, in the order given. Floating dtypes
(float32 unless said) hold normal random values; integers are uniform in [0, HIGH), HIGH being 2
unless said, which is a valid index everywhere; bool is a fair coin.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from torchgauge.errors import InputError
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.visible import visible

if TYPE_CHECKING:
    import torch

    from torchgauge.targets.inputs.fake_tensors import RandomTensors

DEFAULT_DTYPE = "float32"
DEFAULT_HIGH = 2
# The largest value of each integer dtype plus one: the largest HIGH it can hold.
INTEGERS = {"uint8": 2**8, "int8": 2**7, "int16": 2**15, "int32": 2**31, "int64": 2**63 - 1}
DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *INTEGERS,
    "bool",
)
ALIASES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
}
LARGEST_SIZE = 2**40
# Of the widest dtype, 16 bytes; torch counts bytes in 63 bits.
LARGEST_TENSOR = 2**58
EXAMPLE = "1x3x224x224, or input_ids=2x128:int64<50257"

# Values of ONNX files have signs in their names: `past_key_values.0.key`.
_NAME = re.compile(r"[\w.:/-]+\Z")
_OTHER_SIGNS = re.compile("[,*×X]")
_PLAIN = re.compile(r"([A-Za-z_]\w*=)?[1-9][0-9]{0,8}(x[1-9][0-9]{0,8})*(:[a-z]+[0-9]*)?", re.ASCII)
_SIZE = re.compile(r"[0-9]+\Z", re.ASCII)


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """One input as requested; `dtype` and `high` are None where the text left them out."""

    name: str | None
    shape: tuple[int, ...]
    dtype: str | None = None
    high: int | None = None

    def __str__(self) -> str:
        name = f"{self.name}=" if self.name is not None else ""
        dtype = f":{self.dtype}" if self.dtype is not None else ""
        high = f"<{self.high}" if self.high is not None else ""
        return f"{name}{'x'.join(map(str, self.shape))}{dtype}{high}"

    def with_batch(self, batch: int | None) -> InputSpec:
        """Return the spec with its leading dimension replaced; a scalar has none and stays."""
        if batch is None or not self.shape:
            return self
        return dataclasses.replace(self, shape=(batch, *self.shape[1:]))

    def tensor(
        self, draw: RandomTensors, *, dtype: str = DEFAULT_DTYPE, high: int = DEFAULT_HIGH
    ) -> torch.Tensor:
        """Return a random tensor; `dtype` and `high` apply where the spec names none.

        Raises:
            InputError: `input-spec` where no tensor can be that large.
        """
        import torch

        if math.prod(self.shape) > LARGEST_TENSOR:
            raise InputError(
                f"--input {str(self)!r} has more elements than a tensor can hold.",
                id="input-spec",
                cause=f"A tensor holds {LARGEST_TENSOR:,} at most.",
                remedy="Give smaller sizes.",
            )
        name = self.dtype or dtype
        kind: torch.dtype = getattr(torch, name)
        if name in INTEGERS:
            return draw.integers(self.high or min(high, INTEGERS[name]), *self.shape, dtype=kind)
        if name == "bool":
            return draw.integers(2, *self.shape, dtype=kind)
        return draw.normal(*self.shape, dtype=kind)


def parse(text: str) -> InputSpec:
    """Return the spec that `text` writes.

    Raises:
        InputError: `input-spec`, with the place of the problem and an example.
    """
    name, equals, _ = text.partition("=")
    start = len(name) + 1 if equals else 0
    if equals and not _NAME.match(name):
        _fail(text, 0, f"{name!r} is not a name that an input can have")
    shape_text, colon, _ = text[start:].partition(":")
    if not colon:
        shape_text, less_sign, high_text = shape_text.partition("<")
        dtype, high_position = None, start + len(shape_text) + 1
    else:
        dtype_text, less_sign, high_text = text[start + len(shape_text) + 1 :].partition("<")
        dtype = _dtype(text, start + len(shape_text) + 1, dtype_text)
        high_position = start + len(shape_text) + 1 + len(dtype_text) + 1
    shape = _shape(text, start, shape_text, empty_allowed=bool(colon))
    high = _high(text, high_position, high_text, dtype) if less_sign else None
    return InputSpec(name if equals else None, shape, dtype, high)


def parse_all(texts: Iterable[str | InputSpec]) -> list[InputSpec]:
    """Return the specs of several texts (or specs), refusing a name that is given twice.

    Raises:
        InputError: `input-spec`.
    """
    specs = [parse(text) if isinstance(text, str) else text for text in texts]
    names = [spec.name for spec in specs if spec.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"The input {name!r} is given {names.count(name)} times.",
                id="input-spec",
                remedy=f"Give --input {name}=… once.",
            )
    return specs


def make_inputs(texts: Iterable[str | InputSpec], batch: int | None, draw: RandomTensors) -> Inputs:
    """Return random inputs as the texts say, with the leading dimension replaced by `batch`.

    Raises:
        InputError: `input-spec`.
    """
    specs = [spec.with_batch(batch) for spec in parse_all(texts)]
    return Inputs(
        args=tuple(spec.tensor(draw) for spec in specs if spec.name is None),
        kwargs={spec.name: spec.tensor(draw) for spec in specs if spec.name is not None},
    )


def _dtype(text: str, position: int, dtype: str) -> str:
    lower = dtype.lower()
    name = ALIASES.get(lower, lower)
    if name not in DTYPES:
        _fail(text, position, f"{dtype!r} is not a dtype; known are {', '.join(DTYPES)}")
    return name


def _shape(text: str, position: int, shape: str, *, empty_allowed: bool) -> tuple[int, ...]:
    if not shape and empty_allowed:
        return ()
    sizes = []
    for part in shape.split("x"):
        if not _SIZE.match(part):
            _fail(text, position, f"expected a size (a whole number), found {part!r}")
        # Leading digits decide: int() of a very long text is slow and refused by Python itself.
        if len(part.lstrip("0")) > len(str(LARGEST_SIZE)) or not 0 < int(part) <= LARGEST_SIZE:
            _fail(text, position, f"a size lies between 1 and {LARGEST_SIZE}")
        sizes.append(int(part))
        position += len(part) + 1
    return tuple(sizes)


def _high(text: str, position: int, high: str, dtype: str | None) -> int:
    if dtype not in INTEGERS:
        _fail(
            text,
            position - 1,
            f"an upper bound needs an integer dtype, as in :int64<{high or 'HIGH'}",
        )
    largest = INTEGERS[dtype]
    if not _SIZE.match(high):
        _fail(text, position, f"expected an upper bound (a whole number), found {high!r}")
    if len(high.lstrip("0")) > len(str(largest)) or not 0 < int(high) <= largest:
        _fail(text, position, f"an upper bound for {dtype} lies between 1 and {largest}")
    return int(high)


def _fail(text: str, position: int, problem: str) -> NoReturn:
    near = _meant(text)
    raise InputError(
        f"--input {text!r} cannot be read: at character {position + 1}, {problem}.",
        id="input-spec",
        cause=f"{visible(text)}\n{' ' * len(visible(text[:position]))}^",
        remedy=f"Did you mean --input {near}?"
        if near
        else f"Write [NAME=]DxDxD[:DTYPE][<HIGH], for example {EXAMPLE}.",
    )


def _meant(text: str) -> str:
    """Return a shape that was written with other signs than x, as (1, 3, 224, 224); else ""."""
    near = _OTHER_SIGNS.sub("x", text.replace(" ", "").strip("()[]"))
    return near if near != text and _PLAIN.fullmatch(near) else ""
