"""Whether a model fits is counted from what its weights occupy, each once."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest
from torch import nn

from torchgauge.errors import InputError
from torchgauge.targets.huggingface.huggingface import check_fits
from torchgauge.targets.target import TargetRequest


def tied():
    one, two = nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False)
    two.weight = nn.Parameter(one.weight.data)  # another Parameter, the same numbers
    return nn.Sequential(one, two)


def lazy():
    return nn.Sequential(nn.Linear(10, 10, bias=False), nn.LazyLinear(5))


@pytest.mark.parametrize("construct", [tied, lazy])
def test_the_limit_is_what_the_weights_need(construct, monkeypatch):
    def check(free):
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
        check_fits(construct, TargetRequest(spec="test", device="cpu"))

    check(400)
    with pytest.raises(InputError) as caught:
        check(399)
    assert caught.value.id == "model-too-large"
    assert "400 B" in caught.value.message
