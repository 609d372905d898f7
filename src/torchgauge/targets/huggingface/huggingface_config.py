"""Parses `hf:NAME?key=value&…` into a transformers configuration."""

from __future__ import annotations

import ast
from typing import Any

from torchgauge.errors import InputError
from torchgauge.similar import did_you_mean, similar
from torchgauge.targets.huggingface.huggingface_heads import class_named
from torchgauge.targets.huggingface.published_sizes import PUBLISHED, with_published_values
from torchgauge.targets.loaders.near_names import near_names

LIST_CODE = "from transformers import CONFIG_MAPPING; print(*CONFIG_MAPPING)"
CONSTANTS = {"true": True, "false": False, "none": None, "null": None}
# What every configuration takes, whether it lists it or not.
UNLISTED = ("dtype", "attn_implementation", "num_labels", "use_cache")


def configure(transformers: Any, name: str) -> tuple[Any, Any]:
    """Return the configuration `name` writes, and the model class if it names one (else None).

    Raises:
        InputError: `hf-unknown` or `hf-override`.
    """
    architecture, _, query = with_published_values(name).partition("?")
    model_class = class_named(transformers, architecture)
    if model_class is not None:
        config_class = model_class.config_class
    else:
        model_type = _model_type(transformers, architecture)
        config_class = transformers.CONFIG_MAPPING[model_type]
    default = _make(config_class, {}, architecture)
    return _make(config_class, _overrides(query, default, architecture), architecture), model_class


def _model_type(transformers: Any, name: str) -> str:
    model_types: dict[str, str] = {_plain(key): key for key in transformers.CONFIG_MAPPING}
    if _plain(name) in model_types:
        return model_types[_plain(name)]
    classes = [cls for cls in dir(transformers) if "For" in cls or cls.endswith("Model")]
    raise InputError(
        f"transformers has no architecture {name!r}.",
        id="hf-unknown",
        cause="It is neither a model type (bert, llama, …) nor a model class; a name on the hub is "
        "not downloaded: save the model and give its folder.",
        remedy=near_names(
            name.rpartition("/")[2], [*PUBLISHED, *model_types.values(), *classes], LIST_CODE
        ),
    )


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _make(config_class: Any, overrides: dict[str, Any], name: str) -> Any:
    try:
        return config_class(**overrides)
    except Exception as error:  # configurations check their arguments in many ways
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise InputError(
            f"The configuration of {name} cannot be made"
            + (f" with {', '.join(overrides)}." if overrides else " without arguments."),
            id="hf-override",
            cause=" ".join(lines[-2:]),
            remedy=f"See {config_class.__name__} in the transformers documentation.",
        ) from error


def _overrides(query: str, default: Any, name: str) -> dict[str, Any]:
    """Return constructor arguments; a nested key turns into the whole nested configuration."""
    overrides: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, text = part.partition("=")
        if not equals:
            raise InputError(
                f"The override {part!r} of hf:{name} has no value.",
                id="hf-override",
                remedy=f"Write hf:{name}?{key}=VALUE.",
            )
        section, value = default, _value(text)
        *nests, last = key.split(".")
        inner = overrides
        for nest in nests:
            _check_key(section, nest, name)
            section = getattr(section, nest)
            inner = inner.setdefault(nest, section.to_dict() if hasattr(section, "to_dict") else {})
        _check_key(section, last, name)
        inner[last] = value
    return overrides


def _check_key(section: Any, key: str, name: str) -> None:
    aliases = getattr(type(section), "attribute_map", {})
    keys = (
        section if isinstance(section, dict) else section.to_dict() if section is not None else {}
    )
    if key in keys or key in aliases or key in UNLISTED or _in_constructor(section, key):
        return
    near = similar(key, [*keys, *aliases])
    raise InputError(
        f"The configuration {type(section).__name__} of hf:{name} has no {key!r}.",
        id="hf-override",
        remedy=did_you_mean(near, f"It has {', '.join(keys)}."),
    )


def _in_constructor(section: Any, key: str) -> bool:
    return key in getattr(type(section), "__dataclass_fields__", {})


def _value(text: str) -> Any:
    """Return the Python literal, or true, false, none and null in any case, else the text."""
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
