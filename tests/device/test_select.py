import importlib.metadata

import pytest
import torch

from torchgauge.device.cpu import Cpu, cpu_quota, last_level_cache
from torchgauge.device.environment import environment
from torchgauge.device.select import device_named, open_device, resolve
from torchgauge.errors import InputError


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)


def test_without_a_gpu(no_gpu):
    assert resolve(None) == resolve("auto") == resolve("cpu") == "cpu"
    assert resolve("meta") == "meta"


@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_a_gpu_asked_for_and_absent_is_an_error_with_the_remedy(no_gpu, name):
    with pytest.raises(InputError) as caught:
        resolve(name)
    assert caught.value.id == "device-absent"
    assert "--device cpu" in caught.value.remedy


def test_with_gpus(two_gpus):
    assert resolve("auto") == resolve("cuda") == "cuda:1"
    assert resolve("cuda:0") == "cuda:0"
    with pytest.raises(InputError, match="not available"):
        resolve("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:-1", "auto:1", ""])
def test_unknown_devices(no_gpu, name):
    with pytest.raises(InputError) as caught:
        resolve(name)
    assert caught.value.id == "device-unknown"


@pytest.mark.parametrize(
    ("name", "meant"), [("gpu", "cuda?"), ("GPU:1", "cuda:1?"), ("cuda0", "cuda:0?")]
)
def test_a_device_of_another_name_is_told_as_torch_writes_it(name, meant):
    with pytest.raises(InputError) as caught:
        device_named(name)
    assert caught.value.remedy == f"Did you mean {meant}"


def test_devices_are_of_any_case_and_torchs_own(two_gpus):
    assert resolve("CPU") == resolve(torch.device("cpu")) == "cpu"
    assert resolve("CUDA:0") == resolve(torch.device("cuda", 0)) == "cuda:0"


def test_the_last_level_cache_is_the_largest(tmp_path):
    for index, size in enumerate(("32K", "1024K", "32M")):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "size").write_text(f"{size}\n")
    assert last_level_cache(tmp_path) == 32 * 2**20
    assert last_level_cache(tmp_path / "nowhere") is None


def test_a_cpu_flushes_twice_its_cache():
    cpu = Cpu()
    cpu.flush_cache()
    assert cpu._scratch.numel() == 2 * (last_level_cache() or 64 * 2**20)
    assert open_device("cpu").timer() is None


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_cgroup_quotas(tmp_path, files, quota):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_quota(tmp_path) == quota
    assert cpu_quota(tmp_path / "no\0file") is None


def test_the_environment_says_what_comparisons_need():
    found = environment()
    assert found.software.torch == torch.__version__
    assert found.settings.threads == torch.get_num_threads()
    assert found.machine.memory > 0
    assert found.machine.cpu
    assert found.created.endswith("+00:00")


def test_a_checkout_that_is_not_installed_measures_too(monkeypatch):
    """On a machine where nothing can be installed the sources are on the path, and no more."""

    def not_installed(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    assert environment().software.torchgauge == "0+source"
