"""Modules with parameters that a call left alone are on the record, in every form."""

import json

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.api.measurements import count_request
from torchgauge.cli.main import main
from torchgauge.measure.work.count_options import CountOptions
from torchgauge.records import rendering
from torchgauge.records.work.cost import NotCalled
from torchgauge.targets.target import TargetRequest

LLAVA = (
    "hf:llava?text_config.num_hidden_layers=1&text_config.hidden_size=32&text_config.vocab_size=60"
    "&text_config.intermediate_size=48&text_config.num_attention_heads=2"
    "&text_config.num_key_value_heads=2&vision_config.num_hidden_layers=2"
    "&vision_config.hidden_size=16&vision_config.intermediate_size=24"
    "&vision_config.num_attention_heads=2&vision_config.image_size=28&vision_config.patch_size=14"
    "&vision_config.projection_dim=16"
)


class Parts(nn.Module):
    """What runs, what another module's code reads, what is shared, and what is left alone."""

    def __init__(self):
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)  # reads out_proj's weights
        self.table = nn.Embedding(3, 4)  # called by nobody, its weight is read
        self.shared = nn.ModuleList([self.used])
        self.empty = nn.Sequential(nn.ReLU(), nn.Dropout())
        self.tower = nn.Sequential(nn.Linear(4, 5), nn.Sequential(nn.Linear(5, 2, bias=False)))

    def forward(self, x):
        x = self.used(x) @ self.table.weight.t() @ self.table.weight
        return self.attention(x, x, x)[0]


@pytest.mark.parametrize("backward", [False, True])
def test_what_did_not_run_and_was_not_read(backward):
    cost = tg.count_cost(Parts(), torch.ones(1, 3, 4), backward=backward)
    assert cost.not_called == (NotCalled(path="tower", kind="Sequential", parameters=35),)
    (warning,) = cost.warnings
    assert warning.id == "modules-not-called"
    assert "tower (Sequential, 35)" in warning.message


def test_one_expert_of_several_and_a_scripted_part():
    model = nn.Sequential(nn.Linear(2, 2), torch.jit.script(nn.Linear(2, 2)))
    model.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(5))
    model.forward = lambda x: model.experts[3](model[1](model[0](x)))
    found = tg.count_cost(model, torch.ones(1, 2)).not_called
    assert [one.path for one in found] == [f"experts.{place}" for place in (0, 1, 2, 4)]


def test_a_model_of_which_all_runs_has_no_such_warning():
    cost = tg.count_cost(nn.LSTM(3, 4, num_layers=2), torch.ones(5, 1, 3))
    assert (cost.not_called, cost.warnings) == ((), ())


@pytest.fixture
def profile():
    return tg.profile(
        Parts(), torch.ones(1, 3, 4), warmup=0, iterations=2, processes=1, progress=False
    )


@pytest.mark.thorough
def test_a_profile_says_so_in_every_form(profile):
    for form in ("markdown", "json", "html"):
        assert "tower" in rendering.text(profile, form)
    assert "tower (Sequential, 35)" in str(profile).replace("\n", " ").replace("  ", " ")
    read = json.loads(rendering.text(profile, "json"))
    assert read["cost"]["not_called"] == [{"path": "tower", "kind": "Sequential", "parameters": 35}]


def test_the_command_line_says_so(capsys):
    spec = f"{LLAVA}"
    assert main(["count", spec, "--input", "input_ids=1x8:int64<50"]) == 0
    assert "model.vision_tower" in capsys.readouterr().out


def counted(spec, **options):
    return count_request(TargetRequest(spec, **options), CountOptions())


@pytest.mark.thorough
def test_an_image_stands_beside_the_text_by_default():
    meta = counted(LLAVA, device="meta")
    shapes = {one.name: one.shape for one in meta.target.inputs}
    # 28/14 squared patches stand before 128 tokens of text.
    assert shapes == {"input_ids": (1, 4 + 128), "pixel_values": (1, 3, 28, 28)}
    names = {one.path for one in meta.cost.nodes}
    assert "model.vision_tower.encoder.layers.0.mlp.fc1" in names
    assert all("vision_tower.encoder.layers.0" not in one.path for one in meta.cost.not_called)
    real = counted(LLAVA, device="cpu").cost
    assert real.matmul_flops == meta.cost.matmul_flops
    text = counted(LLAVA, inputs=("input_ids=1x132:int64<50",), device="meta").cost
    # Patches 4·3·14²·16; a layer of 5 positions: 4 projections, 2 of 24, attention; projector.
    layer = 5 * (4 * 16 * 16 + 2 * 16 * 24) + 2 * 5 * 5 * 16
    tower = 4 * 3 * 14**2 * 16 + 2 * layer + 4 * (16 * 32 + 32 * 32)
    assert meta.cost.macs - text.macs == tower
