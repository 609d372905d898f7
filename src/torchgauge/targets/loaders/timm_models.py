"""Load a model of timm by its name, with random weights."""

from __future__ import annotations

from types import ModuleType

from torchgauge.errors import InputError, missing_extra
from torchgauge.similar import near_names
from torchgauge.targets.inputs.fake_tensors import RandomTensors
from torchgauge.targets.inputs.input_spec import make_inputs
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.loaders.building import build
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
    timm = _import_timm()
    # A name such as hf-hub:… would reach for the network; those timm lists do not.
    if not timm.is_model(name):
        raise InputError(
            f"timm has no model {name!r}.",
            id="timm-unknown",
            remedy=near_names(name, timm.list_models(), LIST_CODE),
        )
    model = build(lambda: timm.create_model(name, pretrained=False), request.device)
    draw = RandomTensors(request.device)
    if request.inputs:
        inputs = make_inputs(request.inputs, request.batch, draw)
    else:
        shape = (getattr(model, "pretrained_cfg", None) or {}).get("input_size") or IMAGE
        inputs = Inputs(args=(draw.normal(request.batch or 1, *shape),))
    return Target(
        model=model,
        inputs=inputs,
        spec=request.spec,
        kind="timm",
        name=name,
        weights="random",
    )


def _import_timm() -> ModuleType:
    try:
        import_torchvision()
        import timm
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise
        raise missing_extra("timm", "timm", "A timm: target") from error
    module: ModuleType = timm
    return module
