"""Settings travel: what one process reads, another can take over."""

import pytest
import torch
from tests.support.torch_settings import back_to, restored, torch_set

from torchgauge.device import settings


@pytest.fixture(autouse=True)
def default():
    with restored() as before:
        yield before


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_tf32_by_the_oldest_interface(default, precision):
    torch.set_float32_matmul_precision(precision)
    assert_taken_over(default)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("cuda.matmul.allow_tf32", True),
        ("cudnn.allow_tf32", False),
        ("cuda.matmul.fp32_precision", "tf32"),
        ("cudnn.conv.fp32_precision", "ieee"),
        ("mkldnn.matmul.fp32_precision", "bf16"),
        ("fp32_precision", "tf32"),
        ("fp32_precision", "ieee"),
        ("cudnn.benchmark", True),
        ("mkldnn.enabled", False),
    ],
)
def test_a_switch_of_a_backend(default, path, value):
    torch_set(path, value)
    assert_taken_over(default)


def test_older_switches_that_cannot_be_read_here_are_written(default):
    torch_set("cuda.matmul.fp32_precision", "tf32")
    assert "cuda.matmul.allow_tf32" not in settings.read()
    settings.apply(default)
    assert settings.read() == default


def test_autocast(default):
    with torch.autocast("cpu", torch.float16):
        wanted = settings.read()
    assert (wanted["autocast cpu"], wanted["autocast dtype cpu"]) == (True, torch.float16)
    settings.apply(wanted)
    assert settings.read() == wanted


@pytest.mark.parametrize(
    "choose",
    [
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_device("meta"),
        lambda: torch.set_flush_denormal(True),
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: torch.backends.cuda.enable_flash_sdp(False),
        lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    ],
)
def test_what_holds_for_all_of_torch(default, choose):
    choose()
    assert_taken_over(default)


def assert_taken_over(default):
    wanted = settings.read()
    assert wanted != default
    back_to(default)
    settings.apply(wanted)
    assert settings.read() == wanted


def test_what_is_as_it_should_be_is_not_touched(monkeypatch):
    """Setting the number of threads to what it is already changes how MKL chooses its own."""
    monkeypatch.setattr(torch, "set_num_threads", None)
    before = settings.read()
    settings.apply(before)
    assert settings.read() == before
