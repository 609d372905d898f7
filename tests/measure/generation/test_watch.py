"""`tg.watch_generation` around a program."""

import threading

import pytest
import torch
from tests.support.generating_models import generating_model

import torchgauge as tg
from torchgauge.errors import InputError
from torchgauge.records.generation.generation import Generation


@pytest.fixture(scope="module")
def made():
    return generating_model("gpt2")


def test_the_record_has_the_calls_by_shape(made):
    ids = made.inputs["input_ids"]
    with tg.watch_generation(made.model) as watch:
        for _ in range(2):
            made.model.generate(ids, max_new_tokens=4)
        made.model.generate(ids[:, :5], max_new_tokens=2, num_beams=2)
        assert len(watch.calls) == 3
        with pytest.raises(InputError, match="no record yet"):
            watch.record  # noqa: B018
    record = watch.record
    assert isinstance(record, Generation)
    shapes = [(c.batch, c.prompt, c.beams, c.cache_kind, len(c.calls)) for c in record.cells]
    assert shapes == [(2, 9, 1, "dynamic", 2), (2, 5, 2, "dynamic", 1)]
    assert record.watched
    assert record.complete
    assert (record.target.name, record.target.precision) == ("GPT2LMHeadModel", "fp32")
    assert record.size.parameters == sum(p.numel() for p in made.model.parameters())
    assert record.overhead > 0
    assert "without a record" not in str(watch)


def test_what_a_block_saw_before_it_was_stopped_is_kept(made):
    watch = tg.watch_generation(made.model)
    with pytest.raises(KeyboardInterrupt):
        _run_and_stop(watch, made)
    assert watch.record.interrupted
    assert len(watch.calls) == 1
    assert "generate" not in vars(made.model)


def _run_and_stop(watch, made):
    with watch:
        made.model.generate(**made.inputs, max_new_tokens=2)
        raise KeyboardInterrupt


def test_a_block_without_a_call_is_warned_of(made):
    with tg.watch_generation(made.model) as watch:
        torch.zeros(1)
    assert [warning.id for warning in watch.warnings] == ["no-generation-seen"]


def test_other_threads_do_not_measure_meanwhile(made):
    raised = []

    def measure():
        try:
            tg.measure_size(torch.nn.Linear(2, 2))
            tg.measure_latency(torch.nn.Linear(2, 2), torch.ones(1, 2))
        except InputError as error:
            raised.append(error.id)

    with tg.watch_generation(made.model):
        thread = threading.Thread(target=measure)
        thread.start()
        thread.join()
    assert raised == ["timeline-active"]
