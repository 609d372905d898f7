"""The inputs a transformers model needs, from its forward signature and its configuration."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchgauge.errors import InputError
from torchgauge.targets.huggingface import huggingface_sizes as sizes
from torchgauge.targets.inputs.fake_tensors import RandomTensors
from torchgauge.targets.inputs.input_spec import InputSpec, parse_all
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.target import TargetRequest

CTC_LENGTH = 16
OBJECTS = 2
CHOICES = 4
TOKENS = ("input_ids", "decoder_input_ids")
INPUTS_OF_MODALITY = {
    "audio": ("input_features", "input_values"),
    "image": ("pixel_values",),
    "video": ("pixel_values", "pixel_values_videos"),
}
# Types whose pixel_values are clips although they call themselves image models.
CLIP_TYPES = ("timesformer", "vivit", "vjepa2", "xclip", "xclip_vision_model")
# Types that take several images as one example: pairs to match, or pages beside a text.
IMAGES_TOGETHER = {
    **dict.fromkeys(("efficientloftr", "lightglue", "superglue"), (2,)),
    **dict.fromkeys(("idefics", "modernvbert", "colmodernvbert", "ultravbert"), (1,)),
}
# Inputs, and which input each replaces: models refuse both together.
REPLACED_INPUTS = {
    "inputs_embeds": "input_ids",
    "decoder_inputs_embeds": "decoder_input_ids",
    "encoder_outputs": "input_ids",
}


def example_inputs(model: Any, request: TargetRequest) -> Inputs:
    """Return keyword inputs: those given by --input, and random ones for the rest.

    Positional --input values are taken for the first parameters of `forward`. With
    `request.training`, labels are added where `forward` takes them.

    Raises:
        InputError: `input-missing` where an input is needed that nothing describes;
            `input-spec`.
    """
    needs = Needs(model, RandomTensors(request.device), request.batch or 1)
    specs = _specs_by_name(request, needs)
    if specs and request.batch is None:
        needs = dataclasses.replace(needs, batch=_batch_of_specs(specs))
    inputs: dict[str, Any] = {
        name: _tensor_of(spec.with_batch(request.batch), needs) for name, spec in specs.items()
    }
    for name in needs.names(specs):
        make = needs.makers().get(name)
        try:
            inputs[name] = make() if make else None
        except (AttributeError, TypeError):  # the configuration lacks what the size follows from
            inputs[name] = None
        if inputs[name] is None:
            raise _missing(request, model, name)
    if "input_ids" in inputs and "input_ids" not in specs:
        inputs |= _with_image(needs, inputs)
    if request.training:
        inputs |= labels_for(model, inputs, needs.draw)
    return Inputs(kwargs=inputs)


@dataclasses.dataclass(frozen=True)
class Needs:
    """The inputs that one model needs, for one batch size."""

    model: Any
    draw: RandomTensors
    batch: int

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of `forward`, without *args and **kwargs."""
        signature_parameters = inspect.signature(self.model.forward).parameters
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return {name: p for name, p in signature_parameters.items() if p.kind not in variable}

    def names(self, specs: Mapping[str, Any]) -> list[str]:
        """Return the inputs to fill in: the main one, those without default, the second stack's."""
        main = self.model.main_input_name
        required: list[str] = [
            name for name in ([main] if isinstance(main, str) else main) if self._takes(name)
        ]
        required += [name for name, p in self.parameters.items() if p.default is p.empty]
        if not required:  # the main input belongs to another part of the architecture
            required = [name for name in self.makers() if self._takes(name)][:1]
        required += self._partners(required)
        required += BEYOND_SIGNATURE.get(self.model.config.model_type, ())
        absent = {REPLACED_INPUTS[name] for name in specs if name in REPLACED_INPUTS} | set(specs)
        return [name for name in dict.fromkeys(required) if name not in absent]

    def _takes(self, name: str) -> bool:
        return name in self.parameters

    def _partners(self, required: list[str]) -> list[str]:
        """Return the inputs that go with `required`: the decoder's tokens, the other modality.

        A model that matches text with images or sound, as CLIP does, takes both. One that
        generates text and may see an image as well gets one in `_with_image`, where it can be made.
        """
        partners = ["decoder_input_ids"]
        if "input_ids" in required and not self.model.can_generate():
            heard = self._modalities() & {"image", "video", "audio"}
            partners += [
                name for modality in sorted(heard) for name in INPUTS_OF_MODALITY[modality]
            ]
        if "pixel_values" in required:
            partners.append("input_ids")
        return [name for name in partners if self._takes(name)]

    def _modalities(self) -> set[str]:
        named = self.model.input_modalities
        return {named} if isinstance(named, str) else set(named)

    def makers(self) -> dict[str, Callable[[], torch.Tensor]]:
        """Return how each input is made that is known by its name."""
        model, draw, batch = self.model, self.draw, self.batch
        config = model.config
        return {
            "input_ids": lambda: self.tokens(sizes.sequence(model)),
            "decoder_input_ids": self.decoder_tokens,
            "pixel_values": self.pixels,
            "pixel_values_videos": self.clip,
            "input_features": lambda: draw.normal(batch, *sizes.spectrogram(config)),
            "input_values": lambda: draw.normal(batch, *sizes.waveform(config)),
            **makers(model, draw, batch),
        }

    def tokens(self, length: int, *, decoder: bool = False) -> torch.Tensor:
        """Return token ids (batch, length) without special ones, and the end token at the end."""
        vocabulary = sizes.vocabulary(self.model, decoder=decoder)
        choices = (CHOICES,) if type(self.model).__name__.endswith("MultipleChoice") else ()
        ids = self.draw.integers(vocabulary, self.batch, *choices, length)
        if ids.is_meta:
            return ids
        special = sizes.special_tokens(self.model.config)
        plain = next((token for token in range(vocabulary) if token not in special), 0)
        for token in special:
            ids[ids == token] = plain
        end = getattr(self.model.config, "eos_token_id", None)
        if isinstance(end, int) and 0 <= end < vocabulary:
            ids[..., -1] = end
        return ids

    def decoder_tokens(self) -> torch.Tensor:
        """Return the decoder's token ids; a decoder of sound has one row for each codebook."""
        length = sizes.sequence(self.model, sizes.TARGET_POSITIONS)
        codebooks = sizes.find(self.model.config, ("num_codebooks",), ("decoder",))
        if codebooks and self.model.config.model_type.startswith("musicgen"):
            rows = dataclasses.replace(self, batch=self.batch * codebooks)
            return rows.tokens(length, decoder=True)
        return self.tokens(length, decoder=True)

    def pixels(self) -> torch.Tensor:
        """Return images (batch, channels, height, width), with what the type puts in between."""
        config = self.model.config
        if config.model_type in CLIP_TYPES or self._modalities() & {"image", "video"} == {"video"}:
            return self.clip()
        if self._takes("grid_thw"):  # then the images come cut into patches
            return self.makers()["flat_pixel_values"]()
        if self._takes("spatial_shapes"):
            patches = self.makers()["flat_pixel_values"]()
            return patches.reshape(self.batch, -1, patches.shape[-1])
        between = IMAGES_TOGETHER.get(config.model_type, ())
        return self.draw.normal(self.batch, *between, *sizes.image(config))

    def clip(self) -> torch.Tensor:
        """Return clips (batch, frames, channels, height, width)."""
        config = self.model.config
        return self.draw.normal(self.batch, sizes.frames(config), *sizes.image(config))


def _with_image(needs: Needs, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return text and image for a model that generates text on images; nothing for any other.

    The tokens that stand for the image come before the text.
    """
    token = sizes.placeholder(needs.model)
    if token is None or "pixel_values" not in needs.parameters:
        return {}
    pixels = inputs.get("pixel_values")
    if pixels is None:
        pixels = needs.pixels()
    count = sizes.image_token_count(needs.model, pixels)
    text = inputs["input_ids"]
    if count is None or len(pixels) != len(text):
        return {}
    image = torch.full_like(text[:, :1], token).expand(-1, count)
    return {"input_ids": torch.cat([image, text], dim=1), "pixel_values": pixels}


def _specs_by_name(request: TargetRequest, needs: Needs) -> dict[str, InputSpec]:
    order = iter(needs.parameters)
    specs = parse_all(request.inputs)
    used_names = {spec.name for spec in specs}
    by_name = {}
    for spec in specs:
        name = spec.name or next((free for free in order if free not in used_names), None)
        if name is None:
            raise InputError(
                f"{type(needs.model).__name__} takes fewer positional inputs than are given.",
                id="input-spec",
                remedy=f"Name the inputs: {', '.join(needs.parameters)}.",
            )
        by_name[name] = spec
    return by_name


def _batch_of_specs(specs: Mapping[str, InputSpec]) -> int:
    return next((spec.shape[0] for spec in specs.values() if spec.shape), 1)


def _tensor_of(spec: InputSpec, needs: Needs) -> torch.Tensor:
    """Return the tensor of a spec; without a dtype, what ends in _ids or _mask holds integers."""
    name = spec.name or "input_ids"
    if name in TOKENS:
        return spec.tensor(needs.draw, dtype="int64", high=sizes.vocabulary(needs.model))
    if name.endswith(("_ids", "_mask")):
        return spec.tensor(needs.draw, dtype="int64")
    return spec.tensor(needs.draw)


def _missing(request: TargetRequest, model: Any, name: str) -> InputError:
    return InputError(
        f"{request.spec} needs the input {name!r}, and nothing says its shape.",
        id="input-missing",
        cause=f"{type(model).__name__} is called as forward{inspect.signature(model.forward)}.",
        remedy=f"Give it by name, for example --input {name}=1x128:int64<100.",
    )


def labels_for(model: Any, inputs: Mapping[str, Any], draw: RandomTensors) -> dict[str, Any]:
    """Return what `forward` wants beside the inputs to compute a loss; empty where it has none."""
    parameters = inspect.signature(model.forward).parameters
    if "return_loss" in parameters:
        return {"return_loss": True}
    if "start_positions" in parameters:
        length = inputs["input_ids"].shape[-1]
        ends = ("start_positions", "end_positions")
        return {name: draw.integers(length, _batch(inputs)) for name in ends}
    if "labels" not in parameters or "labels" in inputs:
        return {}
    name = type(model).__name__
    for part, make in _BY_CLASS.items():
        if part in name:
            return {"labels": make(model, inputs, draw)}
    return {"labels": _tokens(model, inputs, draw)}


def _batch(inputs: Mapping[str, Any]) -> int:
    return int(next(iter(inputs.values())).shape[0])


def _tokens(model: Any, inputs: Mapping[str, Any], draw: RandomTensors) -> Any:
    """Return the decoder's targets, or for one stack the inputs themselves."""
    if "decoder_input_ids" in inputs:
        return draw.integers(
            sizes.vocabulary(model, decoder=True), *inputs["decoder_input_ids"].shape
        )
    if "input_ids" in inputs:
        return inputs["input_ids"].clone()
    return _classes(model, inputs, draw)


def _classes(model: Any, inputs: Mapping[str, Any], draw: RandomTensors) -> Any:
    classes = int(model.config.num_labels)
    if classes == 1:
        return draw.normal(_batch(inputs))
    return draw.integers(classes, _batch(inputs))


def _token_classes(model: Any, inputs: Mapping[str, Any], draw: RandomTensors) -> Any:
    return draw.integers(int(model.config.num_labels), *inputs["input_ids"].shape)


def _choices(_: Any, inputs: Mapping[str, Any], draw: RandomTensors) -> Any:
    return draw.integers(int(inputs["input_ids"].shape[1]), _batch(inputs))


def _pairs(_: Any, inputs: Mapping[str, Any], draw: RandomTensors) -> Any:
    return draw.integers(2, _batch(inputs))


def _transcripts(model: Any, inputs: Mapping[str, Any], draw: RandomTensors) -> Any:
    # 0 is the blank of connectionist temporal classification and cannot be a target.
    return 1 + draw.integers(sizes.vocabulary(model) - 1, _batch(inputs), CTC_LENGTH)


def _pixel_classes(model: Any, inputs: Mapping[str, Any], draw: RandomTensors) -> Any:
    batch, _, height, width = inputs["pixel_values"].shape
    return draw.integers(int(model.config.num_labels), batch, height, width)


def _boxes(model: Any, inputs: Mapping[str, Any], draw: RandomTensors) -> Any:
    """Return, for each image, objects as class and relative (x, y, width, height)."""
    classes = int(model.config.num_labels)
    boxes = draw.ones(OBJECTS, 4).float() / 4
    return [
        {"class_labels": draw.integers(classes, OBJECTS), "boxes": boxes.clone()}
        for _ in range(_batch(inputs))
    ]


_BY_CLASS: dict[str, Callable[[Any, Mapping[str, Any], RandomTensors], Any]] = {
    "TokenClassification": _token_classes,
    "MultipleChoice": _choices,
    "NextSentencePrediction": _pairs,
    "ForCTC": _transcripts,
    "SemanticSegmentation": _pixel_classes,
    "ObjectDetection": _boxes,
    "Classification": _classes,
}


STEPS = 20  # of a trajectory; the paper's context length
GRID = 16  # patches along each side of an image
PATCH_COLUMNS = 2  # row and column stand before the pixels of a flattened patch
REGIONS = 36  # objects an image detector finds, as the LXMERT paper feeds
HOURS = 24  # the horizon of a forecast

# Types that need inputs which `forward` declares optional.
BEYOND_SIGNATURE = {
    "bros": ("bbox",),
    "clvp": ("input_features",),
    "decision_transformer": ("actions", "rewards", "returns_to_go", "timesteps", "attention_mask"),
    "idefics": ("pixel_values",),
    "siglip2": ("pixel_attention_mask", "spatial_shapes"),
    "udop": ("bbox",),
    "lxmert": ("visual_feats", "visual_pos"),
    "voxtral_realtime": ("input_features",),
}


def makers(model: Any, draw: RandomTensors, batch: int) -> dict[str, Callable[[], torch.Tensor]]:
    """Return how the inputs are made, by their names in `forward`."""
    config = model.config
    return {
        **_time_series(config, draw, batch),
        **_trajectory(config, draw, batch),
        **_vision_tower(config, draw, batch),
        "bbox": lambda: draw.zeros(batch, sizes.sequence(model), 4).float(),
        "visual_feats": lambda: draw.normal(batch, REGIONS, config.visual_feat_dim),
        "visual_pos": lambda: draw.normal(batch, REGIONS, config.visual_pos_dim),
        "inputs": lambda: draw.normal(batch, sizes.SEQUENCE, config.d_model),
        "input_features_mask": lambda: draw.ones(batch, sizes.spectrogram(config)[-1]),
        "query_embeds": lambda: draw.normal(batch, GRID * 2, config.hidden_size),
    }


def _time_series(
    config: Any, draw: RandomTensors, batch: int
) -> dict[str, Callable[[], torch.Tensor]]:
    """Return the windows of a forecasting model: context plus the longest lag."""
    lags = getattr(config, "lags_sequence", None) or [0]
    context = getattr(config, "context_length", None) or HOURS
    length = int(context) + max(lags)
    channels = int(getattr(config, "num_input_channels", 0) or _number(config, "input_size"))
    # Models that patch a window of many channels always have the channel dimension.
    wide = channels > 1 or hasattr(config, "num_input_channels")
    shape = (batch, length, channels) if wide else (batch, length)
    return {
        "past_values": lambda: draw.normal(*shape),
        "past_observed_mask": lambda: draw.ones(*shape).float(),
        "past_time_features": lambda: draw.normal(batch, length, config.num_time_features),
        "past_values_padding": lambda: draw.zeros(batch, length),
        "freq": lambda: draw.zeros(batch, 1),
    }


def _trajectory(
    config: Any, draw: RandomTensors, batch: int
) -> dict[str, Callable[[], torch.Tensor]]:
    return {
        "states": lambda: draw.normal(batch, STEPS, config.state_dim),
        "actions": lambda: draw.normal(batch, STEPS, config.act_dim),
        "rewards": lambda: draw.normal(batch, STEPS, 1),
        "returns_to_go": lambda: draw.normal(batch, STEPS, 1),
        "timesteps": lambda: draw.integers(STEPS, batch, STEPS),
        "attention_mask": lambda: draw.ones(batch, STEPS),
    }


def _vision_tower(
    config: Any, draw: RandomTensors, batch: int
) -> dict[str, Callable[[], torch.Tensor]]:
    """Return images as the flat list of patches that the towers of vision-language models take."""
    patch = sizes.find(config, ("patch_size",), sizes.VISION_PARTS) or 1
    side = patch if isinstance(patch, int) else math.isqrt(math.prod(patch))
    pixels = sizes.image(config)[0] * side**2
    deep = getattr(config, "temporal_patch_size", 1) or 1
    flat = sizes.find(config, ("patch_embed_hidden_size",), sizes.VISION_PARTS)

    def grid() -> torch.Tensor:
        grids = draw.ones(batch, 3)
        grids[:, 1:] = GRID
        return grids

    def flattened() -> torch.Tensor:
        patches = draw.normal(batch, GRID**2, PATCH_COLUMNS + (flat or pixels))
        patches[..., :PATCH_COLUMNS] = 1.0  # row and column, which index embeddings
        return patches

    return {
        "hidden_states": lambda: draw.normal(batch * GRID**2, pixels * deep),
        "flat_pixel_values": lambda: draw.normal(batch * GRID**2, pixels * deep),
        "grid_thw": grid,
        "image_grid_thw": grid,
        "pixel_attention_mask": lambda: draw.ones(batch, GRID**2),
        "spatial_shapes": lambda: draw.ones(batch, 2) * GRID,
        "flattened_patches": flattened,
    }


def _number(config: Any, name: str) -> int:
    value = getattr(config, name, 1)
    return value if isinstance(value, int) else 1
