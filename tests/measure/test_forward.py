"""What the user's model raises becomes an error with an id, a cause and a remedy."""

from __future__ import annotations

import pytest
import torch

from torchgauge.errors import InputError, MeasurementError
from torchgauge.measure import forward
from torchgauge.measure.forward import MemoryLimit


def translated(error, device="cpu"):
    with pytest.raises(MeasurementError) as raised, forward.running(device):
        raise error
    assert raised.value.__cause__ is error
    return raised.value


def test_any_exception_is_named_and_chained():
    error = translated(ValueError("mat1 and mat2\n  do not fit"))
    assert error.id == "forward-raised"
    assert error.cause == "ValueError: mat1 and mat2 do not fit"
    assert "ValueError" in error.message


def test_a_real_failure_of_the_cpu_allocator_says_asked_and_free(monkeypatch):
    monkeypatch.setattr(forward, "free_bytes", lambda device: 5_000_000_000)
    with pytest.raises(MeasurementError) as raised, forward.running():
        torch.empty(2**60, dtype=torch.uint8)
    assert raised.value.id == "out-of-memory"
    assert raised.value.cause.startswith("1,153 PB were requested, 5.000 GB are free.")


def test_cuda_and_python_out_of_memory(monkeypatch):
    monkeypatch.setattr(forward, "free_bytes", lambda device: 10**9)
    error = translated(
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has …"),
        "cuda",
    )
    assert error.id == "out-of-memory"
    assert error.cause.startswith("2.147 GB were requested, 1.000 GB are free.")
    assert "cuda" in error.message
    assert "not known" in translated(MemoryError()).cause


@pytest.mark.parametrize(
    ("left", "said", "remedy"),
    [
        (10**6, "the process is held to 2.000 GB.", "a higher limit"),
        (10**10, "5.000 GB are free.", "a larger device"),  # of which the machine has less
    ],
)
def test_where_a_limit_was_broken_the_limit_is_said_and_not_what_is_free(
    monkeypatch, left, said, remedy
):
    monkeypatch.setattr(forward, "free_bytes", lambda device: 5 * 10**9)
    monkeypatch.setattr(forward, "process_limit", lambda *_: MemoryLimit(2 * 10**9, left))
    error = translated(MemoryError("you tried to allocate 3000000000 bytes"))
    assert error.cause.startswith(f"3.000 GB were requested, {said}")
    assert error.remedy.endswith(f"{remedy}.")


@pytest.mark.parametrize("dtype", ["Half", "BFloat16", "Float8_e4m3fn"])
def test_a_missing_kernel_for_a_precision(dtype):
    error = translated(RuntimeError(f"\"addmm_impl_cpu_\" not implemented for '{dtype}'"))
    assert error.id == "precision-unsupported"
    assert dtype.lower() in error.message
    other = translated(RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Bool'"))
    assert other.id == "forward-raised"


def test_what_is_no_exception_of_pythons_is_translated_as_well():
    class Own(BaseException):
        pass

    assert translated(Own("its own words")).cause == "Own: its own words"


def test_own_errors_and_interruptions_pass_through():
    for error in (InputError("x", id="y"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, forward.running():
            raise error
        assert raised.value is error


def test_free_bytes_of_the_host_are_known_and_of_an_absent_device_are_not():
    assert forward.free_bytes("cpu") > 0
    assert forward.free_bytes("meta") is None


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: device-side assert triggered"),
        AssertionError("Torch not compiled with CUDA enabled"),
        ValueError("Expected a cuda device"),
    ],
)
def test_a_device_that_cannot_be_asked_any_more_hides_no_error(error, monkeypatch):
    def raises(device):
        raise error

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", raises)
    assert forward.free_bytes("cuda:0") is None
    assert "unknown are free" in translated(torch.OutOfMemoryError("x"), "cuda:0").cause
    assert forward.free_bytes("no device") is None
