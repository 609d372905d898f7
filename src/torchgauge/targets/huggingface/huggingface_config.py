"""Parses `hf:NAME?key=value&…` into a transformers configuration."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torchgauge.errors import InputError
from torchgauge.similar import did_you_mean, near_names, similar


def _decoder(architecture: str, *sizes: int, overrides: str = "") -> str:
    """Return a decoder of llama's keys: width, feed-forward, layers, heads, key heads, tokens."""
    keys = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    )
    values = "&".join(f"{key}={value}" for key, value in zip(keys, sizes, strict=True))
    return f"{architecture}?{values}{overrides}"


_LARGE_ENCODER = (
    "hidden_size=1024&intermediate_size=4096&num_hidden_layers=24&num_attention_heads=16"
)
_TIED = "&tie_word_embeddings=true"
_WHISPER_LARGE = (
    "whisper?d_model=1280&encoder_layers=32&encoder_attention_heads=20&encoder_ffn_dim=5120"
    "&decoder_attention_heads=20&decoder_ffn_dim=5120&num_mel_bins=128&vocab_size=51866"
)
_ROBERTA_LARGE = (
    f"roberta?{_LARGE_ENCODER}&vocab_size=50265&max_position_embeddings=514&type_vocab_size=1"
)

# From the config.json that was published with the weights. A value that is transformers' default
# stands where the name asks for it; what changes no shape, such as the rotary base, does not.
PUBLISHED: Mapping[str, str] = MappingProxyType(
    {
        "bert-base": "bert",
        "bert-large": f"bert?{_LARGE_ENCODER}",
        "gpt2-large": "gpt2?n_embd=1280&n_layer=36&n_head=20",
        "gpt2-medium": "gpt2?n_embd=1024&n_layer=24&n_head=16",
        "gpt2-xl": "gpt2?n_embd=1600&n_layer=48&n_head=25",
        "llama-2-7b": _decoder("llama", 4096, 11008, 32, 32, 32, 32000),
        "llama-2-13b": _decoder("llama", 5120, 13824, 40, 40, 40, 32000),
        "llama-2-70b": _decoder("llama", 8192, 28672, 80, 64, 8, 32000),
        "llama-3-8b": _decoder("llama", 4096, 14336, 32, 32, 8, 128256),
        "llama-3-70b": _decoder("llama", 8192, 28672, 80, 64, 8, 128256),
        "llama-3.1-8b": _decoder("llama", 4096, 14336, 32, 32, 8, 128256),
        "llama-3.1-70b": _decoder("llama", 8192, 28672, 80, 64, 8, 128256),
        "llama-3.1-405b": _decoder("llama", 16384, 53248, 126, 128, 8, 128256),
        "llama-3.2-1b": _decoder("llama", 2048, 8192, 16, 32, 8, 128256, overrides=_TIED),
        "llama-3.2-3b": _decoder(
            "llama", 3072, 8192, 28, 24, 8, 128256, overrides=f"&head_dim=128{_TIED}"
        ),
        "mistral-7b": _decoder("mistral", 4096, 14336, 32, 32, 8, 32000),
        "mistral-7b-v0.3": _decoder(
            "mistral", 4096, 14336, 32, 32, 8, 32768, overrides="&sliding_window=none"
        ),
        "mixtral-8x7b": _decoder("mixtral", 4096, 14336, 32, 32, 8, 32000),
        "qwen2.5-0.5b": _decoder("qwen2", 896, 4864, 24, 14, 2, 151936, overrides=_TIED),
        "qwen2.5-1.5b": _decoder("qwen2", 1536, 8960, 28, 12, 2, 151936, overrides=_TIED),
        "qwen2.5-7b": _decoder("qwen2", 3584, 18944, 28, 28, 4, 152064),
        "qwen2.5-72b": _decoder("qwen2", 8192, 29568, 80, 64, 8, 152064),
        "roberta-large": _ROBERTA_LARGE,
        "t5-small": "t5",
        "t5-base": "t5?d_model=768&d_ff=3072&num_layers=12&num_heads=12",
        "t5-large": "t5?d_model=1024&d_ff=4096&num_layers=24&num_heads=16",
        "t5-3b": "t5?d_model=1024&d_kv=128&d_ff=16384&num_layers=24&num_heads=32",
        "t5-11b": "t5?d_model=1024&d_kv=128&d_ff=65536&num_layers=24&num_heads=128",
        "vit-base": "vit?num_labels=1000",
        "vit-large": f"vit?{_LARGE_ENCODER}&num_labels=1000",
        "whisper-large-v3": f"{_WHISPER_LARGE}&decoder_layers=32",
        "whisper-large-v3-turbo": f"{_WHISPER_LARGE}&decoder_layers=4",
    }
)


def with_published_values(name: str) -> str:
    """Return `llama-3-8b?key=value` as `llama?…&key=value`, any other name as it is."""
    model, _, query = name.partition("?")
    published = PUBLISHED.get(model.lower())
    if published is None:
        return name
    architecture, _, values = published.partition("?")
    return f"{architecture}?{'&'.join(filter(None, (values, query)))}"


FALLBACKS = (
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
    "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES",
    "MODEL_FOR_AUDIO_TOKENIZATION_NAMES",
    "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
    "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES",
    "MODEL_FOR_BACKBONE_MAPPING_NAMES",
)


def class_named(transformers: Any, name: str) -> Any:
    """Return the model class of that name, or None where transformers has none."""
    model_class = getattr(transformers, name, None) if name.isidentifier() else None
    if isinstance(model_class, type) and issubclass(model_class, transformers.PreTrainedModel):
        return model_class
    return None


def architecture_of(transformers: Any, config: Any) -> Any:
    """Return the model class for a configuration; the first rule that applies decides.

    1. the first of the configuration's own `architectures`;
    2. sequence-to-sequence language model, of text or of speech;
    3. causal language model, for types that have no masked-language head (those, such as bert,
       are encoders: rule 6);
    4. image classification, for types that do not match images with text (clip: rule 6);
    5. the model that answers with text on images, where that is all there is or its usual use;
    6. the bare model, as AutoModel gives it;
    7. for what has no bare model, the first of the remaining tasks that has a class.

    Raises:
        InputError: `hf-unknown`: a configuration no model belongs to.
    """
    from torchgauge.errors import InputError

    named = [class_named(transformers, name) for name in config.architectures or ()]
    if named and named[0] is not None:
        return named[0]
    for name in _ordered_names(config.model_type):
        model_class = class_named(transformers, name)
        # A composite type may list the head of its text part, which takes that part's config.
        if model_class is not None and isinstance(config, model_class.config_class):
            return model_class
    raise InputError(
        f"transformers has no model for {type(config).__name__}.",
        id="hf-unknown",
        cause=f"{config.model_type!r} is part of another architecture, not one of its own.",
        remedy="Name a model class: hf:CLASS.",
    )


def _ordered_names(model_type: str) -> list[str]:
    from transformers.models.auto import modeling_auto as auto

    def name(mapping: Mapping[str, Any]) -> str | None:
        class_names = mapping.get(model_type)
        return class_names[0] if isinstance(class_names, (tuple, list)) else class_names

    masked = name(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    matching = name(auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES)
    rules = [
        name(auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES),
        name(auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES),
        None if masked else name(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
        None if matching or masked else name(auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES),
        None if masked else name(auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES),
        name(auto.MODEL_MAPPING_NAMES),
        *(name(getattr(auto, mapping, {})) for mapping in FALLBACKS),
    ]
    remaining = [
        name(mapping)
        for key, mapping in vars(auto).items()
        if key.startswith("MODEL_FOR_") and key.endswith("_NAMES")
    ]
    return [rule for rule in (*rules, *remaining) if rule is not None]


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
