"""What a job on many devices is like, and for which devices its ranks are judged; without torch."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Literal

from torchgauge.errors import InputError, option_invalid
from torchgauge.records.work.roofline import Roofs

Checkpoint = Literal["full", "op", "none"]
CHECKPOINTS: tuple[Checkpoint, ...] = ("none", "op", "full")
PRECISIONS = ("fp32", "bf16")
MAX_RANKS = 1_000_000
_DIM = re.compile(r"([A-Za-z_]\w*)=(\d+)\Z")
_EXAMPLE = "Give names and sizes, outermost first, such as --mesh fsdp=128,tp=8."


@dataclasses.dataclass(frozen=True)
class ParallelOptions:
    """How a job runs.

    Attributes:
        mesh: Names and sizes of the dimensions, outermost first.
        optimizer: A class of torch.optim by its name, or "sgd-momentum"; None: AdamW, or that which
            the target's function returns.
        precision: "fp32", "bf16"; None: as the model is, or as the target's function makes it.
        checkpoint: Which activations are computed again; None: none, or as the function says.
        batch: Samples of a rank at a time; None: as the inputs are, or as the function says.
        on: The devices for which memory and time are judged.
        smallest: Whether to look for the smallest mesh that fits the first of them.
        savings: Whether to count what changes of the settings would save.

    Raises InputError `mesh-invalid`, `option-invalid`.
    """

    mesh: tuple[tuple[str, int], ...]
    optimizer: str | None = None
    precision: str | None = None
    checkpoint: Checkpoint | None = None
    batch: int | None = None
    on: tuple[Roofs, ...] = ()
    smallest: bool = False
    savings: bool = False

    def __post_init__(self) -> None:
        names = [name for name, _ in self.mesh]
        if not names or len(set(names)) < len(names) or any(size < 1 for _, size in self.mesh):
            raise invalid_mesh(",".join(f"{name}={size}" for name, size in self.mesh))
        if self.world_size > MAX_RANKS:
            raise InputError(
                f"A mesh of {self.world_size:,} ranks is too large.",
                id="mesh-invalid",
                cause=f"At most {MAX_RANKS:,} ranks are counted.",
                remedy=_EXAMPLE,
            )
        _check("checkpoint", self.checkpoint, CHECKPOINTS)
        _check("precision", self.precision, PRECISIONS)
        if self.smallest and not self.on:
            raise option_invalid(
                "The smallest mesh that fits depends on the device.",
                "Add --on h100, or another device.",
                cause="No device is given.",
            )

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return math.prod(size for _, size in self.mesh)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the dimensions by name."""
        return dict(self.mesh)


def mesh_of(mesh: str | Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the dimensions of a mesh from "fsdp=128,tp=8" or sizes by name.

    Raises InputError `mesh-invalid`.
    """
    if isinstance(mesh, str):
        matches = [_DIM.fullmatch(part.strip()) for part in mesh.split(",")]
        dims = [(match[1], match[2]) for match in matches if match is not None]
        if len(dims) < len(matches) or any(len(size) > len(str(MAX_RANKS)) for _, size in dims):
            raise invalid_mesh(mesh)
        return tuple((name, int(size)) for name, size in dims)
    is_named = isinstance(mesh, Mapping)
    if not is_named or not all(_DIM.fullmatch(f"{name}={size}") for name, size in mesh.items()):
        raise invalid_mesh(str(mesh))
    return tuple(mesh.items())


def invalid_mesh(text: str) -> InputError:
    """Return the error of a text that is not a mesh."""
    return InputError(
        f"'{text}' is not a mesh.",
        id="mesh-invalid",
        cause="A mesh is dimensions with different names, each of one device or more.",
        remedy=_EXAMPLE,
    )


def _check(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise option_invalid(
            f"{name} = '{value}' is not possible.",
            "Choose one of them.",
            cause=f"It is one of {', '.join(choices)}.",
        )
