"""Candidates in real processes: a small model, few calls."""

import dataclasses
import os

import pytest
import torch
from tests.support.advice_models import convolutional
from tests.support.advice_processes import coded, world
from tests.support.advice_worlds import facts

import torchgauge as tg
from torchgauge.advice.candidates.every import ALL_CANDIDATES
from torchgauge.advice.experiment import Experiment
from torchgauge.advice.world import Side
from torchgauge.errors import MeasurementError
from torchgauge.measure.advice.check import check_sent
from torchgauge.measure.advice.facts import facts_sent
from torchgauge.progress import Silent
from torchgauge.targets.training.training import Training

KNOWN = {one.id: one for one in ALL_CANDIDATES}


@pytest.mark.slow
def test_outputs_decide_before_anything_is_timed_and_a_crash_is_a_result():
    model, x = convolutional()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    flags, forward = model.training, model.forward
    broken = coded("broken", "model[8].weight.data.mul_(1.5)")
    crash = coded("crash", "import os\nos.abort()")
    raising = coded("raising", "model.forward = lambda *_: 1 / 0")
    real = world(model, x)
    real.block = lambda *_, **__: pytest.fail("it was timed")
    found = Experiment(real, (broken, crash, raising), Silent()).run()
    trials = {one.id: one for one in found.trials}
    assert trials["broken"].outcome == "rejected"
    assert trials["broken"].output.max_relative > 0.1
    assert trials["crash"].outcome == "failed"
    assert "SIGABRT" in trials["crash"].reason
    assert trials["raising"].outcome == "failed"
    assert "ZeroDivisionError" in trials["raising"].reason
    # The user's model is as it was: it travelled by value.
    assert (model.training, model.forward) == (flags, forward)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())


@pytest.mark.slow
def test_a_good_change_is_measured_with_the_user_s_metric():
    model, x = convolutional()
    real = world(model, x, metric=_agreement)
    checked = real.check(Side((KNOWN["fold-batch-norm"],)), 0.01)
    assert checked.output.passed
    assert checked.output.metric_before == pytest.approx(checked.output.metric_after, rel=1e-4)
    assert 0 < checked.output.max_relative < 1e-4
    facts = real.facts()
    assert 0 < checked.memory < facts.memory  # two norms' parameters and outputs are gone
    assert checked.one_off >= 0


def _agreement(outputs):
    return outputs.softmax(-1).max()


@pytest.mark.slow
def test_settings_and_variables_reach_the_timed_processes():
    """The candidate reports what it finds by how long it takes: asleep where something is amiss."""
    model, x = convolutional()
    check = (
        "import os, time\n"
        "assert torch.get_num_threads() == 1\n"
        "assert os.environ['MALLOC_MMAP_MAX_'] == '0'"
    )
    sides = (KNOWN["threads-one"], coded("look", check, order="process"), KNOWN["malloc-keep"])
    found = world(model, x).block(Side(), Side(sides), layers=True)
    assert found.before > 0
    assert found.after > 0
    assert "8" in found.layers
    assert "MALLOC_MMAP_MAX_" not in os.environ


@pytest.mark.slow
def test_the_original_of_inference_mode_keeps_gradients():
    class Slow(torch.nn.Module):
        def forward(self, x):
            if torch.is_inference_mode_enabled():
                return x * 1
            for _ in range(2000):
                x = x * 1
            return x

    real = world(Slow(), torch.ones(2))
    found = real.block(Side(), Side((KNOWN["inference-mode"],)), layers=False)
    assert found.difference < -1


@pytest.mark.slow
def test_the_optimizer_of_a_training_step_is_changed_and_its_steps_compared():
    def loss(outputs, _):
        return outputs.square().mean()

    train = Training(loss=loss, optimizer=torch.optim.AdamW)
    real = world(*convolutional(), train=train)
    assert real.facts().optimizer == "AdamW"
    fused = real.check(Side((KNOWN["optimizer-fused"],)), 1e-3)
    assert fused.output.passed
    wild = coded("wild", "for group in optimizer.param_groups: group['lr'] = 1.0", on="optimizer")
    assert not real.check(Side((wild,)), 1e-3).output.passed


@pytest.mark.slow
def test_advice_on_a_model_end_to_end(tmp_path):
    class Wasteful(torch.nn.Module):
        """Thirty times the work where gradients are on, which inference mode saves."""

        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(256, 256)

        def forward(self, x):
            for _ in range(2 if torch.is_inference_mode_enabled() else 60):
                y = self.fc(x)
            return y

    ids = ["inference-mode", "sdpa"]
    advice = tg.advise(Wasteful(), torch.ones(64, 256), candidates=ids, progress=False)
    assert [one.id for one in advice.trials] == ids
    assert advice["inference-mode"].outcome == "accepted"
    assert advice["sdpa"].outcome == "untried"
    assert tg.load(advice.save(tmp_path / "advice.json")) == advice
    assert "inference-mode" in str(advice)


def test_facts_are_asked_once():
    real = dataclasses.replace(world(*convolutional()), _facts="known")
    assert real.facts() == "known"


def test_what_is_wrong_with_a_metric_is_told_at_once(monkeypatch):
    """It would fail with every candidate, minutes later."""
    asked = []

    def ask(work, *_, **__):
        asked.append(work)
        if work == check_sent:
            raise MeasurementError("Your metric raised ZeroDivisionError.", id="metric-raised")
        return facts(), False

    monkeypatch.setattr("torchgauge.advice.world.ask", ask)
    with pytest.raises(MeasurementError, match="Your metric"):
        world(*convolutional(), metric=_agreement).facts()
    assert asked == [facts_sent, check_sent]
    assert world(*convolutional()).facts() == facts()
