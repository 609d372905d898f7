"""torchvision:NAME and timm:NAME."""

from __future__ import annotations

import sys

import pytest
import torch

from torchgauge.errors import InputError, MissingExtraError
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import Target, TargetRequest

# Where an operator of torchvision's compiled library is needed, that test says so itself.
NEEDS_OPERATORS = "torchvision::nms"


def runs(spec: str, **options: object) -> Target:
    target = load(TargetRequest(spec, **options))
    target.model.eval()
    with torch.inference_mode():
        assert target.model(*target.inputs.args, **target.inputs.kwargs) is not None
    return target


@pytest.mark.parametrize(
    ("spec", "parameters", "shape"),
    [
        ("torchvision:resnet50", 25_557_032, (1, 3, 224, 224)),
        ("torchvision:vit_b_16", 86_567_656, (1, 3, 224, 224)),
        ("torchvision:vit_h_14", 632_045_800, (1, 3, 224, 224)),
        ("torchvision:inception_v3", 27_161_264, (1, 3, 299, 299)),
        # 35,322,218 with the auxiliary head (3·3·1024·256 + 512 + 257·21) that training adds
        ("torchvision:fcn_resnet50", 35_322_218 - 2_365_205, (1, 3, 520, 520)),
        ("torchvision:r3d_18", 33_371_472, (1, 3, 16, 112, 112)),
        ("timm:resnet50", 25_557_032, (1, 3, 224, 224)),
        ("timm:efficientnet_b0", 5_288_548, (1, 3, 224, 224)),
        ("timm:vit_base_patch16_384", 86_859_496, (1, 3, 384, 384)),
    ],
)
def test_parameters_and_input_sizes(spec: str, parameters: int, shape: tuple[int, ...]) -> None:
    target = load(TargetRequest(spec, device="meta"))
    assert sum(parameter.numel() for parameter in target.model.parameters()) == parameters
    assert all(parameter.is_meta for parameter in target.model.parameters())
    assert target.inputs.args[0].shape == shape
    assert target.weights == "random"


@pytest.mark.parametrize(
    "spec",
    [
        "torchvision:resnet18",
        "torchvision:mobilenet_v2",
        pytest.param("torchvision:lraspp_mobilenet_v3_large", marks=pytest.mark.thorough),
        "timm:mobilenetv3_small_050",
        pytest.param("timm:vit_tiny_patch16_224.augreg_in21k", marks=pytest.mark.thorough),
    ],
)
def test_one_call_works_as_loaded(spec: str) -> None:
    target = runs(spec, batch=2)
    assert (target.batch, target.images, target.tokens) == (2, 2, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        *(f"torchvision:{name}" for name in ("vit_b_16", "swin_v2_t", "maxvit_t", "googlenet")),
        *(f"torchvision:{name}" for name in ("deeplabv3_resnet50", "mvit_v2_s", "s3d", "swin3d_t")),
        *(f"torchvision:{name}" for name in ("raft_small", "quantized_mobilenet_v2")),
        *(f"timm:{name}" for name in ("convnext_tiny", "resnet18", "swin_tiny_patch4_window7_224")),
        *(f"timm:{name}" for name in ("mixer_s16_224", "nfnet_f0", "efficientvit_b0")),
    ],
)
def test_one_call_works_as_loaded_in_more_families(spec: str) -> None:
    target = runs(spec)
    assert (target.kind, target.batch) == (spec.partition(":")[0], 1)


def test_detection_takes_a_list_of_images() -> None:
    name = "fasterrcnn_mobilenet_v3_large_320_fpn"
    target = load(TargetRequest(f"torchvision:{name}", batch=2))
    (images,) = target.inputs.args
    assert [image.shape for image in images] == [(3, 320, 320)] * 2
    assert (target.batch, target.images) == (2, 2)
    target.model.eval()
    try:
        with torch.inference_mode():
            outputs = target.model(*target.inputs.args)
    except (RuntimeError, NotImplementedError) as error:
        if not any(text in str(error) for text in (NEEDS_OPERATORS, "custom C++ ops")):
            raise
        pytest.skip("torchvision has no compiled operators here")
    assert len(outputs) == 2


def test_optical_flow_takes_two_images() -> None:
    first, second = load(TargetRequest("torchvision:raft_small", device="meta")).inputs.args
    assert first.shape == second.shape == (1, 3, 368, 496)


def test_given_inputs_replace_the_known_size() -> None:
    target = runs("torchvision:resnet18", inputs=("1x3x64x96",), batch=3)
    assert target.inputs.args[0].shape == (3, 3, 64, 96)


def test_a_name_that_would_download_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        load(TargetRequest("timm:hf-hub:timm/resnet18.a1_in1k"))
    assert caught.value.id == "timm-unknown"


@pytest.mark.parametrize(
    ("spec", "library"), [("torchvision:resnet18", "torchvision"), ("timm:resnet18", "timm")]
)
def test_an_absent_library_is_named(
    monkeypatch: pytest.MonkeyPatch, spec: str, library: str
) -> None:
    class Absent:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name.partition(".")[0] == library:
                raise ModuleNotFoundError(f"No module named {name!r}", name=library)

    monkeypatch.setattr(sys, "meta_path", [Absent, *sys.meta_path])
    for name in list(sys.modules):
        if name.partition(".")[0] == library:
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=rf"torchgauge-profiler\[{library}\]"):
        load(TargetRequest(spec))


def test_a_torchvision_that_does_not_fit_torch_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "torchvision":
                raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(sys, "meta_path", [Broken, *sys.meta_path])
    for name in list(sys.modules):
        if name.partition(".")[0] == "torchvision":
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InputError) as caught:
        load(TargetRequest("torchvision:resnet18"))
    assert caught.value.id == "torchvision-broken"
    assert "nms" in caught.value.cause
    assert torch.__version__ in caught.value.cause
