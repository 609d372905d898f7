"""Labels for a training step of a transformers model, so that its output carries `.loss`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torchgauge.targets.huggingface import huggingface_sizes as sizes
from torchgauge.targets.inputs.fake_tensors import RandomTensors

CTC_LENGTH = 16
OBJECTS = 2


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
