"""Two models that are both here, compared and gated by object."""

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge import InputError


def made(width):
    return nn.Linear(8, width), torch.ones(2, 8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_models_are_run_in_turn_and_compared():
    found = tg.compare(made(4), made(6), blocks=3, progress=False)
    assert found.change_of("params").change == pytest.approx(54 / 36 - 1)
    latency = found.change_of("latency")
    # On a busy machine it is of calls that nothing disturbed, which are estimated.
    assert latency.how in ("measured", "estimated")
    assert latency.interval.low < latency.change < latency.interval.high


@pytest.mark.parametrize("sides", [(made(4), "run.json"), ("run.json", made(4))])
def test_a_model_is_not_compared_with_a_record(sides):
    with pytest.raises(InputError) as caught:
        tg.compare(*sides)
    assert caught.value.id == "gate-sides"


def test_a_pair_has_a_model_and_inputs():
    with pytest.raises(InputError, match="is a tuple of 1") as caught:
        tg.compare((nn.Linear(8, 4),), made(4))
    assert caught.value.id == "gate-sides"


def test_what_raises_at_every_attribute_is_no_profile():
    class Raises:
        def __getattr__(self, name):
            raise RuntimeError(name)

    with pytest.raises(InputError, match="A Raises cannot be compared") as error:
        tg.compare(Raises(), Raises())
    assert error.value.id == "not-a-profile"
