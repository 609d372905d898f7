"""Load a model of timm by its name, with random weights."""

from __future__ import annotations

from torchgauge.errors import InputError
from torchgauge.imports import required
from torchgauge.similar import near_names
from torchgauge.targets.inputs.fake_tensors import RandomTensors
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.loaders.building import build, requested_inputs
from torchgauge.targets.loaders.importing_torchvision import import_torchvision
from torchgauge.targets.target import Target, TargetRequest

LIST_CODE = "from timm import list_models; print(*list_models())"
IMAGE = (3, 224, 224)


def load(request: TargetRequest, name: str) -> Target:
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
            remedy=near_names(name, timm.list_models(), LIST_CODE),
        )
    model = build(lambda: timm.create_model(name, pretrained=False), request.device)
    inputs = requested_inputs(request)
    if inputs is None:
        shape = (getattr(model, "pretrained_cfg", None) or {}).get("input_size") or IMAGE
        image = RandomTensors(request.device).normal(request.batch or 1, *shape)
        inputs = Inputs(args=(image,))
    return Target(
        model=model,
        inputs=inputs,
        spec=request.spec,
        kind="timm",
        name=name,
        weights="random",
    )
