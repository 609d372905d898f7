import pytest
import torch

from torchgauge.device.environment import environment
from torchgauge.device.settings import switches, tf32


@pytest.fixture(autouse=True)
def _clean():
    before = torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision = before


def state():
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@pytest.mark.parametrize("allowed", [True, False])
def test_the_older_interface_is_put_back(precision, allowed):
    torch.set_float32_matmul_precision(precision)
    before = state()
    with tf32(allowed=allowed):
        assert switches() == (("tf32", "tf32") if allowed else ("ieee", "ieee"))
        assert torch.backends.cuda.matmul.allow_tf32 is allowed  # readable for the model's code
    assert state() == before


@pytest.mark.parametrize("allowed", [True, False])
def test_the_newer_interface_is_put_back(allowed):
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError):
        torch.get_float32_matmul_precision()
    with tf32(allowed=allowed):
        assert switches() == (("tf32", "tf32") if allowed else ("ieee", "ieee"))
    assert switches() == ("tf32", "tf32")
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


def test_the_environment_can_be_read_whichever_interface_was_used():
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert environment().settings.fp32_matmul == "tf32"
    torch.backends.cuda.matmul.fp32_precision = "none"
    assert environment().settings.fp32_matmul == "ieee"
