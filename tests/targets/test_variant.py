"""The settings of a cell, applied to a target."""

import pytest
import torch
from torch import nn

from torchgauge.errors import InputError
from torchgauge.targets.inputs.batching import with_length
from torchgauge.targets.inputs.inputs import Inputs
from torchgauge.targets.quantization import ModelWithInputs, Variant
from torchgauge.targets.target import TargetRequest


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def opened(model, make, **settings):
    return Variant(ModelWithInputs(model, make), **settings).open()


def images(batch):
    return torch.randn(batch, 3, 8, 8)


def test_inputs_are_made_for_the_batch():
    placement = opened(nn.Flatten(), images, batch=4)
    assert placement.inputs.args[0].shape == (4, 3, 8, 8)
    assert (placement.target.batch, placement.target.images) == (4, 4)
    assert placement.target.name == "Flatten"


def test_inputs_that_are_given_are_repeated():
    placement = opened(nn.Flatten(), torch.arange(6.0).reshape(2, 3), batch=4)
    assert placement.inputs.args[0].tolist() == [[0, 1, 2], [3, 4, 5]] * 2


def test_a_length_goes_to_what_makes_the_inputs_or_to_the_inputs():
    tokens = torch.arange(6).reshape(2, 3)
    made = opened(nn.Embedding(9, 4), lambda b, n: torch.ones(b, n, dtype=torch.long),
                  batch=2, seq_len=5)  # fmt: skip
    assert made.inputs.args[0].shape == (2, 5)
    given = opened(nn.Embedding(9, 4), tokens, seq_len=5)
    assert given.inputs.args[0].tolist() == [[0, 1, 2, 0, 1], [3, 4, 5, 3, 4]]


def test_masks_go_with_their_tokens_and_what_is_no_sequence_stays():
    inputs = with_length(
        Inputs.of({"ids": torch.ones(2, 4, dtype=torch.long), "mask": torch.ones(2, 4, 4),
                   "embeds": torch.ones(2, 4, 8), "label": torch.ones(2)}), 2,
    )  # fmt: skip
    shapes = {name: tuple(tensor.shape) for name, tensor in inputs.tensors()}
    assert shapes == {"ids": (2, 2), "mask": (2, 2, 4), "embeds": (2, 2, 8), "label": (2,)}
    assert with_length(Inputs.of(torch.ones(2, 4, 8)), 3).args[0].shape == (2, 3, 8)
    for none in (torch.ones(2, 3, 8, 8), (torch.ones(1, 4, 8), torch.ones(1, 5, 8))):
        with pytest.raises(InputError) as caught:
            with_length(Inputs.of(none), 2)
        assert caught.value.id == "input-length"


def test_channels_last_reorders_weights_and_images():
    placement = opened(nn.Conv2d(3, 4, 3), images, batch=2, channels_last=True)
    assert placement.model.weight.is_contiguous(memory_format=torch.channels_last)
    assert placement.inputs.args[0].is_contiguous(memory_format=torch.channels_last)
    left = opened(nn.Conv2d(3, 4, 3), images, batch=2, channels_last=False)
    assert left.inputs.args[0].is_contiguous()


def test_int8_says_how_much_of_the_model_it_is():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.LayerNorm(32))
    placement = opened(model, torch.randn(2, 8), precision="int8")
    assert placement.precision == "int8"
    assert placement.method == "dynamic, 50 % of the weights"
    assert placement.model[0](torch.randn(2, 8)).shape == (2, 8)
    assert not isinstance(placement.model[0], nn.Linear)


@pytest.mark.thorough
def test_precision_threads_and_compilation_are_set():
    placement = opened(nn.Linear(4, 4), torch.randn(1, 4), precision="bf16", threads=1,
                       compile="default")  # fmt: skip
    assert torch.get_num_threads() == 1
    assert placement.inputs.args[0].dtype == torch.bfloat16
    assert placement.method == "cast"
    assert type(placement.model).__name__ == "OptimizedModule"
    assert isinstance(opened(nn.Linear(4, 4), torch.randn(1, 4), compile="none").model, nn.Linear)


@pytest.mark.parametrize(
    ("model", "make", "settings", "id"),
    [
        (nn.Linear(4, 4), torch.ones(1, 4), {"channels_last": True}, "channels-last-unsupported"),
        (torch.relu, torch.ones(1, 3, 4, 4), {"channels_last": True}, "channels-last-unsupported"),
        (nn.Conv2d(3, 4, 3), images, {"batch": 1, "precision": "int8"}, "int8-unsupported"),
        (torch.relu, torch.ones(1), {"precision": "int8"}, "int8-unsupported"),
        (nn.Linear(4, 4), torch.ones(1, 4), {"precision": "tf32"}, "precision-unsupported"),
        (nn.Linear(4, 4), torch.ones(1, 4), {"device": "cuda:99"}, "device-absent"),
    ],
)
def test_what_cannot_be_is_refused_by_id(model, make, settings, id):
    with pytest.raises(InputError) as caught:
        opened(model, make, **settings)
    assert caught.value.id == id


def test_a_request_is_loaded_with_the_batch(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("from torch import nn, ones\ndef make(): return nn.Linear(4, 2), ones(1, 4)\n")
    placement = Variant(TargetRequest(spec=f"{path}:make"), batch=3, device="cpu").open()
    assert placement.inputs.args[0].shape == (3, 4)
    assert placement.target.spec == f"{path}:make"
