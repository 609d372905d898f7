"""What fails on the meta device is counted once more on the CPU, in a process of its own."""

import sys

import pytest
import torch

from torchgauge.errors import BuildError, InputError
from torchgauge.measure.processes.separate_process import count_in_separate_process
from torchgauge.measure.work.count import count
from torchgauge.measure.work.count_options import CountOptions
from torchgauge.targets.loaders.building import build
from torchgauge.targets.target import TargetRequest

OTHER = CountOptions(fall_back=True)
MACS = 2 * 4 * 3

PACKAGE = """
import functools, torch
from torch import nn

SCALE = torch.tensor([1.0, 2.0, 3.0, 4.0])

@functools.cache
def table():
    return torch.arange(4.0)

class Constant(nn.Linear):
    def forward(self, x):
        return super().forward(x * SCALE) if SCALE.sum().item() == 10 else x

class Cached(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.steps = table()

    def forward(self, x):
        return super().forward(x) if table().sum().item() == 6 else x

class Reads(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.offset = float(table().sum())
"""
FILE = """
import pathlib, sys, torch

X = torch.ones(2, 4)

def constant():
    import constants
    return constants.Constant(4, 3), X

def cached():
    import constants
    return constants.Cached(), X

def reads():  # its second call finds the table that the first has made
    import constants
    return constants.Reads(), X

class Pipeline:
    def __init__(self):
        self.layer = torch.nn.Linear(4, 3)

    def __call__(self, text):
        return self.layer(torch.ones(len(text), 4))

def pipeline():
    return Pipeline(), "ab"

def broken():
    with open(pathlib.Path(__file__).with_name("calls"), "a") as file:
        file.write("x")
    raise ValueError("its own words")
"""


@pytest.fixture
def target(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "constants.py").write_text(PACKAGE)
    (tmp_path / "target_with_constants.py").write_text(FILE)
    yield lambda name: TargetRequest(f"{tmp_path}/target_with_constants.py:{name}", device="meta")
    for name in ("constants", "target_with_constants"):
        sys.modules.pop(name, None)


THOROUGH = [pytest.param(name, marks=pytest.mark.thorough) for name in ("reads", "pipeline")]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["cached", *THOROUGH])
def test_constants_and_tables_have_values_there(target, name):
    record = count(target(name), OTHER, count_in_separate_process)
    assert (record.cost.macs, record.cost.counted_on) == (MACS, "cpu")
    assert [warning.id for warning in record.cost.warnings] == ["counted-on-cpu"]


def no_second_time(_source):
    raise AssertionError("counted a second time")


def test_what_a_factory_imports_has_values_and_the_count_stays_on_meta(target):
    record = count(target("constant"), OTHER, no_second_time)
    assert record.cost.macs == MACS
    assert sys.modules["constants"].SCALE.device.type == "cpu"


def test_a_module_that_is_imported_while_a_model_is_built_makes_real_tensors(target, tmp_path):
    sys.path.insert(0, str(tmp_path))

    def make():
        import constants

        return constants.SCALE, torch.ones(2)

    scale, made = build(make, "meta")
    assert (scale.tolist(), made.device.type) == ([1.0, 2.0, 3.0, 4.0], "meta")


@pytest.mark.parametrize(("fall_back", "device"), [(False, "meta"), (True, "cpu")])
def test_only_a_count_that_may_fall_back_from_meta_is_done_again(target, fall_back, device):
    request = TargetRequest(target("broken").spec, device=device)
    with pytest.raises(BuildError, match="its own words"):
        count(request, CountOptions(fall_back=fall_back), no_second_time)


def test_what_an_import_raises_is_not_tried_again(tmp_path):
    (tmp_path / "wrong.py").write_text("raise ValueError('its own words')")
    request = TargetRequest(f"{tmp_path}/wrong.py:make", device="meta")
    with pytest.raises(InputError, match="its own words"):
        count(request, OTHER, no_second_time)


def test_the_process_is_asked_for_the_cpu_and_for_no_third_try(target):
    asked = []

    def ask(source):
        asked.append(source)
        raise InputError("stop", id="stop")

    with pytest.raises(InputError, match="stop"):
        count(target("broken"), OTHER, ask)
    assert [(one.target.device, one.options.fall_back) for one in asked] == [("cpu", False)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("form", ["quantized", "frozen"])
def test_a_program_that_meta_cannot_load_is_counted_on_the_cpu(form, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3)).eval()
    if form == "quantized":
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})
    program = torch.jit.script(model)
    path = tmp_path / "program.pt"
    torch.jit.save(torch.jit.freeze(program) if form == "frozen" else program, path)
    request = TargetRequest(str(path), inputs=("2x4",), device="meta", trust=True)
    record = count(request, OTHER, lambda source: count(source.target, source.options, refused))
    assert record.cost.counted_on == "cpu"
    assert record.size.parameters == 15
    work = record.cost.total()
    products = work.integer_ops if form == "quantized" else work.matmul_flops
    assert products == 2 * MACS


def refused(source):
    raise AssertionError(source)
