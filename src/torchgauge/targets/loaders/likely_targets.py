"""The targets that an invalid text probably means: `resnet18` is `torchvision:resnet18`."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path

from torchgauge.errors import TorchgaugeError
from torchgauge.files import is_file
from torchgauge.similar import similar
from torchgauge.targets.huggingface.huggingface_config import PUBLISHED

SCHEMES = ("torchvision", "timm", "hf")
MAX_TARGETS = 3
_SEPARATORS = re.compile(r"[-_. ]")


def likely_targets(spec: str) -> list[str]:
    """Return the targets, the likeliest first: a file's function, else a library's model."""
    file = _file(spec)
    if file:
        return [file]
    images = _torchvision_names()
    exact = _equal_name(spec, images)
    if exact:
        return [f"torchvision:{exact}"]
    # A name on the hub begins with the model's or the architecture's.
    architecture = _beginning(spec.rpartition("/")[2], _transformers_names())
    if architecture:
        return [f"hf:{architecture}"]
    return [f"torchvision:{name}" for name in similar(spec, images, limit=MAX_TARGETS)]


def likely_scheme(spec: str) -> str:
    """Return the target with the scheme that was meant (`torchvison:…`), "" where none is near."""
    scheme, _, name = spec.partition(":")
    near = similar(scheme, SCHEMES, limit=1)
    return f"{near[0]}:{name}" if near else ""


def _file(spec: str) -> str:
    """Return `models.py:make` for `models.make` where there is that file."""
    module, _, name = spec.rpartition(".")
    file = f"{module.replace('.', '/')}.py"
    return f"{file}:{name}" if module and name.isidentifier() and is_file(Path(file)) else ""


def _torchvision_names() -> list[str]:
    if importlib.util.find_spec("torchvision") is None:
        return []
    from torchgauge.targets.loaders.importing_torchvision import import_torchvision

    try:
        return list(import_torchvision().models.list_models())
    except TorchgaugeError:  # it does not fit the installed torch
        return []


def _transformers_names() -> list[str]:
    if importlib.util.find_spec("transformers") is None:
        return []
    import transformers

    return [*PUBLISHED, *transformers.CONFIG_MAPPING]


def _equal_name(name: str, names: Iterable[str]) -> str:
    """Return the name that differs in case and separators alone."""
    return next((candidate for candidate in names if _plain(candidate) == _plain(name)), "")


def _beginning(name: str, names: Iterable[str]) -> str:
    """Return the longest of the names that this one begins with, as a word of its own."""
    plain = name.lower().replace("_", "-")

    def begins(candidate: str) -> bool:
        candidate = candidate.lower().replace("_", "-")
        return (
            plain.startswith(candidate) and not plain[len(candidate) : len(candidate) + 1].isalpha()
        )

    return max(filter(begins, names), key=len, default="")


def _plain(name: str) -> str:
    return _SEPARATORS.sub("", name.lower())
