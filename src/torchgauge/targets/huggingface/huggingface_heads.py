"""Chooses the transformers model class for a configuration that names none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
