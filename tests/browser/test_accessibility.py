"""The rules of axe-core, on a page of each kind of record."""

import sys

import msgspec
import pytest
import torch
from tests.support import advices, pages
from tests.support.accessibility import violations
from tests.support.paths import EXAMPLES

import torchgauge as tg

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def resnet18():
    sys.path.insert(0, str(EXAMPLES))
    try:
        from resnet18 import resnet18
    finally:
        sys.path.remove(str(EXAMPLES))
    return resnet18()


def profile(model, image):
    return tg.profile(model, image, iterations=3)


def training(model, image):
    train = tg.Training(
        loss=lambda outputs, inputs: outputs.square().mean(), optimizer=torch.optim.SGD
    )
    return tg.profile(model, image, train=train, iterations=3)


def latency(model, image):
    return tg.profile(model, image, iterations=3, detail="summary")


def loop(model, image):
    with tg.timeline(model, schedule=tg.Schedule(skip=0, warmup=1, record=1)) as run:
        for _ in range(4):
            with tg.mark("augment"):
                brighter = image * 1.1
            model(brighter)
    return run.record


@pytest.fixture(scope="module", params=[profile, training, latency, loop], ids=lambda f: f.__name__)
def record(request, resnet18):
    return request.param(*resnet18)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_kind_of_record(opened, axe, record, theme):
    assert violations(opened, axe, record, color_scheme=theme) == []


def advice_with_long_lines():
    record = advices.advice()
    code = "model = " + " + ".join(["convert(model)"] * 9)
    trials = tuple(msgspec.structs.replace(trial, code=code) for trial in record.trials)
    return msgspec.structs.replace(record, trials=trials)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("make", [pages.with_tree, advice_with_long_lines])
def test_on_a_phone(opened, axe, theme, make):
    phone = {"width": 400, "height": 900}
    assert violations(opened, axe, make(), color_scheme=theme, viewport=phone) == []


def test_thousands_of_elements(opened, axe):
    assert violations(opened, axe, pages.chain(20_000)) == []
