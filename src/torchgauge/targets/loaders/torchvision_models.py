"""`torchvision:NAME` and `timm:NAME`: every model that they list, with random weights."""

from __future__ import annotations

from typing import Any

from torchgauge.errors import InputError
from torchgauge.imports import required
from torchgauge.similar import near_names
from torchgauge.targets.inputs.fake_tensors import RandomTensors
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.loaders.building import build, requested_inputs
from torchgauge.targets.loaders.importing_torchvision import import_torchvision
from torchgauge.targets.target import Target, TargetRequest

LIST_CODE = "from torchvision.models import list_models; print(*list_models())"
TIMM_LIST_CODE = "from timm import list_models; print(*list_models())"
IMAGE = (3, 224, 224)
IMAGE_SIZE = 224
# Where a family's weights say no size: what its reference scripts train or evaluate with.
DETECTION_SIZE = (800, 800)
DETECTION_SIZES = {"ssd300": (300, 300), "320": (320, 320)}
FLOW_SIZE = (368, 496)
CLIP_FRAMES = 16


def load(request: TargetRequest, name: str) -> Target:
    """Return a torchvision model by its registered name.

    Raises:
        InputError: `torchvision-unknown`, `torchvision-broken`, or an --input that cannot be read.
        MissingExtraError: torchvision is not installed.
    """
    models = import_torchvision().models
    model_names = models.list_models()
    if name not in model_names:
        raise InputError(
            f"torchvision has no model {name!r}.",
            id="torchvision-unknown",
            remedy=near_names(name, model_names, LIST_CODE),
        )
    model = build(lambda: models.get_model(name, **_no_weights(models, name)), request.device)
    return Target(
        model=model,
        inputs=requested_inputs(request) or _example_inputs(models, name, model, request),
        spec=request.spec,
        kind="torchvision",
        name=name,
        weights="random",
    )


def _no_weights(models: Any, name: str) -> dict[str, Any]:
    family = models.get_model_builder(name).__module__
    with_backbone = ".detection." in family or ".segmentation." in family
    # GoogLeNet and Inception warn, and take seconds, unless told how to initialise.
    slow = {"init_weights": False} if family.endswith(("googlenet", "inception")) else {}
    slow = {} if ".quantization." in family else slow
    return {"weights": None, **({"weights_backbone": None} if with_backbone else {}), **slow}


def _example_inputs(models: Any, name: str, model: Any, request: TargetRequest) -> Inputs:
    batch, draw = request.batch or 1, RandomTensors(request.device)
    family = models.get_model_builder(name).__module__
    weights = next(iter(models.get_model_weights(name)))
    if ".detection." in family:
        size = next((s for key, s in DETECTION_SIZES.items() if key in name), DETECTION_SIZE)
        return Inputs(args=([draw.normal(3, *size) for _ in range(batch)],))
    if ".optical_flow." in family:
        return Inputs(args=tuple(draw.normal(batch, 3, *FLOW_SIZE) for _ in range(2)))
    preset = weights.transforms()
    crop = getattr(preset, "crop_size", None) or getattr(preset, "resize_size", [IMAGE_SIZE])
    size = (crop[0], crop[-1])
    if ".video." in family:
        frames = max(CLIP_FRAMES, weights.meta.get("min_temporal_size", 1))
        return Inputs(args=(draw.normal(batch, 3, frames, *size),))
    # Vision transformers take one size alone, and their first weights may be for a larger one.
    side = getattr(model, "image_size", None)
    return Inputs(args=(draw.normal(batch, 3, *((side, side) if side else size)),))


def load_timm(request: TargetRequest, name: str) -> Target:
    """Return a timm model by its name, which may carry a tag of pretrained weights.

    Only the tag's input size is used: the weights are random, and nothing is downloaded.

    Raises:
        InputError: `timm-unknown`, `torchvision-broken`, or an --input that cannot be read.
        MissingExtraError: timm or torchvision is not installed.
    """
    import_torchvision()
    timm = required("timm", "timm", "A timm: target")
    # A name such as hf-hub:… would reach for the network; those timm lists do not.
    if not timm.is_model(name):
        raise InputError(
            f"timm has no model {name!r}.",
            id="timm-unknown",
            remedy=near_names(name, timm.list_models(), TIMM_LIST_CODE),
        )
    model = build(lambda: timm.create_model(name, pretrained=False), request.device)
    inputs = requested_inputs(request)
    if inputs is None:
        shape = (getattr(model, "pretrained_cfg", None) or {}).get("input_size") or IMAGE
        image = RandomTensors(request.device).normal(request.batch or 1, *shape)
        inputs = Inputs(args=(image,))
    return Target(
        model=model, inputs=inputs, spec=request.spec, kind="timm", name=name, weights="random"
    )
