"""--weights: state dicts from files, and files that would run code."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from torchgauge.errors import InputError
from torchgauge.targets.loaders.load import load_weights


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    return {
        name: torch.randn_like(value) if value.is_floating_point() else value + 5
        for name, value in model().state_dict().items()
    }


def refused(path: Path, into: object = None) -> InputError:
    with pytest.raises(InputError) as caught:
        load_weights(into or model(), path)
    return caught.value


def check_loaded(path: Path, state: dict[str, torch.Tensor]) -> None:
    into = model()
    load_weights(into, path)
    for name, value in into.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_safetensors(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    save_file(state, tmp_path / "w.safetensors")
    check_loaded(tmp_path / "w.safetensors", state)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin"])
@pytest.mark.parametrize("wrapper", [None, "state_dict", "model_state_dict", "model"])
def test_pickles(
    tmp_path: Path, state: dict[str, torch.Tensor], suffix: str, wrapper: str | None
) -> None:
    content = {wrapper: state, "epoch": 3} if wrapper else state
    torch.save(content, tmp_path / f"w{suffix}")
    check_loaded(tmp_path / f"w{suffix}", state)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_prefixes_of_wrapped_models_are_dropped(
    tmp_path: Path, state: dict[str, torch.Tensor], prefix: str
) -> None:
    torch.save({prefix + name: value for name, value in state.items()}, tmp_path / "w.pt")
    check_loaded(tmp_path / "w.pt", state)


def test_one_error_lists_every_kind_of_mismatch(
    tmp_path: Path, state: dict[str, torch.Tensor]
) -> None:
    del state["0.weight"], state["1.bias"]
    state["0.bias"] = torch.zeros(9)
    state |= {f"extra.{index}": torch.zeros(1) for index in range(5)}
    torch.save(state, tmp_path / "w.pt")
    into = model()
    before = {name: value.clone() for name, value in into.state_dict().items()}
    error = refused(tmp_path / "w.pt", into)
    assert error.id == "weights-mismatch"
    assert "2 missing from the file: 0.weight, 1.bias" in error.cause
    assert "5 not in the model: extra.0, extra.1, extra.2, … (2 more)" in error.cause
    assert "1 of another shape: 0.bias (9, the model has 3)" in error.cause
    assert all(torch.equal(value, before[name]) for name, value in into.state_dict().items())


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("plain_pickle", [False, True])
def test_a_pickle_that_would_run_code_does_not(tmp_path: Path, plain_pickle: bool) -> None:
    marker, path = tmp_path / "it-ran", tmp_path / "w.pt"
    content = {"payload": Hostile(marker), "0.weight": torch.zeros(3, 4)}
    if plain_pickle:
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path)
    error = refused(path)
    assert error.id == "weights-untrusted"
    assert "system" in error.cause
    assert not marker.exists()
    # The file is a real attack: an unguarded load runs it.
    torch.load(path, weights_only=False) if not plain_pickle else pickle.loads(path.read_bytes())
    assert marker.exists()


def test_a_saved_module_is_refused_as_code(tmp_path: Path) -> None:
    torch.save(model(), tmp_path / "w.pt")
    error = refused(tmp_path / "w.pt")
    assert error.id == "weights-untrusted"
    assert "torch.nn.modules.container.Sequential" in error.cause


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights at all", b"\x80\x02garbage"])
def test_files_that_are_no_weights(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert refused(tmp_path / name).id == "weights-unreadable"


def test_a_truncated_file(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    torch.save(state, tmp_path / "w.pt")
    content = (tmp_path / "w.pt").read_bytes()
    (tmp_path / "w.pt").write_bytes(content[: len(content) // 2])
    assert refused(tmp_path / "w.pt").id == "weights-unreadable"


def test_a_pickle_of_something_else(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "w.pt")
    assert refused(tmp_path / "w.pt").id == "weights-unreadable"


def test_a_missing_file(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.pt").id == "file-missing"


def test_a_model_without_state(tmp_path: Path) -> None:
    assert refused(tmp_path / "w.pt", into=lambda x: x).id == "weights-no-module"


def test_on_the_meta_device_names_are_checked(
    tmp_path: Path, state: dict[str, torch.Tensor]
) -> None:
    torch.save(state, tmp_path / "w.pt")
    with torch.device("meta"):
        load_weights(model(), tmp_path / "w.pt")
        assert refused(tmp_path / "w.pt", torch.nn.Linear(4, 3)).id == "weights-mismatch"
