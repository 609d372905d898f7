"""How many of the architectures of a library are loaded with inputs that they accept."""

from __future__ import annotations

import warnings

import pytest
import torch

from torchgauge.errors import TorchgaugeError
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import TargetRequest

# Operators whose result depends on values have no shape without them: not a matter of inputs.
VALUES_NEEDED = ("item()", "nonzero", "Cannot copy out of meta", "repeat_interleave", "on device")
# Of the types that can be called without values; it was 0.84 with transformers 5.23.
LEAST_ACCEPTED = 0.8


def verdict(spec: str) -> str:
    """Return "accepted", "refused: why", or "-" where nothing can be said without values."""
    try:
        target = load(TargetRequest(spec, device="meta", precision="bf16"))
    except TorchgaugeError as error:
        wanting = ("input-missing", "input-spec")
        return f"refused: {error.message}" if error.id in wanting else "-"
    target.model.eval()
    half = target.inputs.map(lambda x: x.bfloat16() if x.is_floating_point() else x)
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.model(*half.args, **half.kwargs)
    except Exception as error:  # noqa: BLE001 - whatever a model of a library raises
        return "-" if any(text in str(error) for text in VALUES_NEEDED) else f"refused: {error}"
    return "accepted"


@pytest.mark.slow
def test_most_types_of_transformers_accept_their_inputs() -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    verdicts = {name: verdict(f"hf:{name}") for name in transformers.CONFIG_MAPPING}
    accepted = [name for name, said in verdicts.items() if said == "accepted"]
    refused = {name: said for name, said in verdicts.items() if said.startswith("refused")}
    for name, said in refused.items():
        print(name, said.splitlines()[0][:100])
    print(f"{len(accepted)} accepted, {len(refused)} refused, of {len(verdicts)}")
    assert len(accepted) > 300
    assert len(accepted) / (len(accepted) + len(refused)) > LEAST_ACCEPTED


@pytest.mark.slow
def test_every_torchvision_model_that_is_no_detector_accepts_its_inputs() -> None:
    from torchvision import models

    detectors = set(models.list_models(module=models.detection))
    for name in models.list_models():
        if name in detectors:
            continue
        target = load(TargetRequest(f"torchvision:{name}", device="meta"))
        target.model.eval()
        with torch.inference_mode():
            assert target.model(*target.inputs.args) is not None, name
