"""Counting where the code reads values: on real tensors, from the command line and from Python."""

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.api.measurements import count_request
from torchgauge.errors import InputError, MeasurementError
from torchgauge.measure.forward import opened
from torchgauge.measure.work import count
from torchgauge.measure.work.count_options import CountOptions
from torchgauge.targets.builds.source import Source
from torchgauge.targets.loaders.load import load
from torchgauge.targets.target import TargetRequest

SMALL = (
    "d_model=32&encoder_layers=1&decoder_layers=1&encoder_attention_heads=2"
    "&decoder_attention_heads=2&encoder_ffn_dim=48&decoder_ffn_dim=48&vocab_size=60"
)
TEXT = "num_hidden_layers=1&hidden_size=32&num_attention_heads=2&intermediate_size=48&vocab_size=60"
READ_VALUES = {
    "bart": SMALL,
    "deberta": TEXT,
    "deberta-v2": TEXT,
    "vits": "hidden_size=32&num_hidden_layers=1&num_attention_heads=2&ffn_dim=48&flow_size=32"
    "&vocab_size=38&upsample_initial_channel=64&use_stochastic_duration_prediction=false",
}


class Reads(nn.Module):
    """A layer that runs where a value says so."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, mask):
        return self.layer(x) if mask.all() else x


def on_meta(make):
    with torch.device("meta"):
        return make()


class Makes(Reads):
    """One that makes a tensor of its own."""

    def forward(self, x, mask):
        return super().forward(x + torch.ones(4), mask)


def test_where_meta_is_the_default_device_it_counts_on_the_cpu_all_the_same():
    with torch.device("meta"):
        cost = tg.count_cost(Makes(), (torch.ones(2, 4), torch.ones(2)))
    assert cost.counted_on == "cpu"
    assert cost.matmul_flops == 2 * 2 * 4 * 3


@pytest.mark.slow
@pytest.mark.parametrize("name", READ_VALUES)
def test_an_object_on_meta_counts_as_the_command_line_does(name):
    spec = f"hf:{name}?{READ_VALUES[name]}"
    request = TargetRequest(spec, device="meta")
    command_line = count_request(request, CountOptions(fall_back=True)).cost
    target = load(request)
    cost = tg.count_cost(target.model, target.inputs)
    assert cost.counted_on == "cpu"
    assert cost.warnings[-1].id == "counted-on-cpu"
    if name != "vits":  # its length is decided by the random values
        assert cost.totals == command_line.totals
    assert cost.matmul_flops > 0
    assert all(parameter.is_meta for parameter in target.model.parameters())


@pytest.mark.parametrize("backward", [False, True])
def test_by_hand(backward):
    model = on_meta(Reads)
    inputs = on_meta(lambda: {"x": torch.ones(2, 4), "mask": torch.ones(2, dtype=torch.int64)})
    cost = tg.count_cost(model, inputs, backward=backward)
    assert cost.macs == (2 if backward else 1) * 2 * 4 * 3
    assert "meta" in cost.warnings[0].message


def test_values_that_are_given_decide():
    """A model on meta with real inputs: the inputs' own values are read."""
    inputs = {"x": torch.ones(2, 4), "mask": torch.zeros(2)}
    assert tg.count_cost(on_meta(Reads), inputs).macs == 0


def test_what_fails_on_real_tensors_too_says_their_error():
    inputs = on_meta(lambda: (torch.ones(2, 5), torch.ones(2)))
    with pytest.raises(MeasurementError, match="raised") as caught:
        tg.count_cost(on_meta(Reads), inputs)
    assert "2x5" in caught.value.cause
    assert "--device cpu" not in caught.value.remedy


def test_a_model_too_large_for_values_says_what_helps(monkeypatch):
    monkeypatch.setattr(count, "LARGEST", 59)  # the layer has 15 float32
    inputs = on_meta(lambda: (torch.ones(2, 4), torch.ones(2)))
    with pytest.raises(MeasurementError) as caught:
        tg.count_cost(on_meta(Reads), inputs)
    assert "no values" in caught.value.remedy


def test_a_profile_on_meta_counts_so_as_well():
    inputs = on_meta(lambda: (torch.ones(2, 4), torch.ones(2, dtype=torch.bool)))
    profile = tg.profile(on_meta(Reads), inputs, progress=False)
    assert profile.cost.macs == 2 * 4 * 3
    assert "counted-on-cpu" in [one.id for one in profile.all_warnings]


class OneBeside(nn.Module):
    """A parameter that its constructor makes on the CPU, whatever the default device."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.unused = nn.Parameter(torch.FloatTensor(6))

    def forward(self, x):
        return self.layer(x)


def test_a_model_of_which_a_part_alone_is_on_meta_is_counted_there():
    model = on_meta(OneBeside)
    assert {one.device.type for one in model.parameters()} == {"cpu", "meta"}
    cost = tg.count_cost(model, torch.ones(2, 4, device="meta"))
    assert (cost.macs, cost.counted_on, cost.warnings) == (2 * 4 * 3, "meta", ())
    assert model.unused.device.type == "cpu"


def test_measuring_such_a_model_is_refused_with_the_names_of_both_parts():
    with pytest.raises(InputError) as caught:
        opened(Source.of_object(on_meta(OneBeside), torch.ones(2, 4)))
    assert caught.value.id == "several-devices"
    assert "on cpu: 1 (unused, …); on meta: 2 (layer.weight, …)" in caught.value.cause
