"""Measuring generation: every cell in turn, what fails beside what does not, all put back."""

import copy
import os
import signal

import msgspec
import pytest
import torch
from tests.support import language_models as models

from torchgauge.api.generations import measure_generation
from torchgauge.errors import InputError
from torchgauge.records.record import Interval
from torchgauge.records.work.energy import Energy, EnergyCounter
from torchgauge.report.content.generation import generation_words as words

# What only costs time is left out.
BARE = {"effort": "quick", "trees": False, "memory": False, "roofs": False, "progress": False}


@pytest.fixture(autouse=True)
def single_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def measured(model, **options):
    return measure_generation(model, **{"new_tokens": 4, "prompt": 8, **BARE, **options})


def own_warnings(generation):
    """The ids of warnings but of what else the machine does while tests run."""
    of_machine = {"other-load", "steal-time", "throttled", "gpu-throttled"}
    return [warning.id for warning in generation.warnings if warning.id not in of_machine]


@pytest.mark.thorough
def test_every_combination_is_a_cell_of_as_many_calls():
    generation = measured(models.llama(), prompt=(8, 16), batch=(1, 2), cache=("dynamic", "none"))
    shapes = [(cell.cache_kind, cell.batch, cell.prompt) for cell in generation.cells]
    assert shapes == [
        (kind, batch, prompt)
        for kind in ("dynamic", "none")
        for batch in (1, 2)
        for prompt in (8, 16)
    ]
    for cell in generation.cells:
        assert (cell.status, cell.new_tokens, len(cell.calls), cell.warmup) == ("done", 4, 4, 1)
        for call in cell.calls:
            assert (call.batch, call.prompt, call.new_tokens) == (cell.batch, cell.prompt, 4)
            assert call.forwards.stage == ("prefill", "decode", "decode", "decode")
        assert cell.ttft.calls == 3
    assert generation.complete
    assert generation.target.name == "LlamaForCausalLM"


@pytest.mark.thorough
def test_cells_take_turns():
    model, lengths = models.llama(), []

    def note(_module, args, kwargs):
        if kwargs["input_ids"].shape[1] > 1:
            lengths.append(kwargs["input_ids"].shape[1])

    model.register_forward_pre_hook(note, with_kwargs=True)
    measured(model, prompt=(8, 16))
    assert lengths[: 2 * 4] == [8, 16] * 4


def test_an_end_token_ends_no_call():
    model = models.llama()
    ends = {"eos_token_id": list(range(models.WORDS)), "pad_token_id": 0}
    model.generation_config.update(**ends)
    assert measured(model).cells[0].new_tokens == 4
    assert model.generation_config.eos_token_id == ends["eos_token_id"]


@pytest.mark.thorough
def test_model_configurations_and_randomness_are_put_back():
    model = models.llama().train()
    before = copy.deepcopy(model.state_dict())
    attributes, config = dict(vars(model)), copy.deepcopy(model.config.to_dict())
    own, contents = model.generation_config, copy.deepcopy(model.generation_config.to_dict())
    random = torch.get_rng_state()
    measured(model, cache=("static", "none"), memory=True)
    assert model.training
    assert dict(vars(model)) == attributes
    assert model.config.to_dict() == config
    assert model.generation_config is own
    assert own.to_dict() == contents
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.thorough
def test_a_static_cache_is_as_long_as_its_own_cell_needs():
    generation = measured(models.llama(), prompt=(32, 8), cache="static")
    lengths = [cell.work_of("decode").cache_bytes for cell in generation.cells]
    position = 2 * models.LAYERS * models.KEY_HEADS * 16 * 4
    # Read at its full length, written at one position; and each layer's count of positions.
    assert lengths[0] - lengths[1] == 24 * position


@pytest.mark.thorough
@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), MemoryError()]
)
def test_out_of_memory_at_a_cell_leaves_the_others(error):
    model = models.raising_above(16, error)
    generation = measured(model, prompt=(8, 16, 32), batch=(1, 2))
    statuses = {(cell.batch, cell.prompt): cell.status for cell in generation.cells}
    assert statuses == {
        (1, 8): "done",
        (1, 16): "done",
        (1, 32): "out of memory",
        (2, 8): "done",
        (2, 16): "out of memory",
        (2, 32): "skipped",
    }
    failed = generation.cells[2]
    assert failed.error == "out-of-memory"
    assert "Memory ran out" in failed.reason
    assert failed.ttft is None
    assert generation.cells[5].reason == (
        "Memory ran out before at batch 1, prompt 32, cache dynamic."
    )


def test_a_cell_that_raises_leaves_the_others():
    model = models.raising_above(16, ValueError("too long for me"))
    short, long = measured(model, prompt=(8, 32)).cells
    assert short.status == "done"
    assert (long.status, long.error) == ("failed", "forward-raised")
    assert "too long for me" in long.reason


def test_learned_positions_are_not_exceeded():
    fitting, beyond = measured(models.gpt2(), prompt=(124, 125)).cells
    assert fitting.status == "done"
    assert (beyond.status, beyond.error) == ("failed", "positions-exceeded")
    assert beyond.reason == "The model has 128 learned positions, and this takes 129."
    assert beyond.calls == ()


def test_ctrl_c_keeps_what_was_measured():
    model, calls = models.llama(), []

    def interrupt(_module, args, kwargs):
        calls.append(kwargs["input_ids"].shape[1])
        if len(calls) == 4 * 5 + 2:  # in the second round, in the last cell's first step
            os.kill(os.getpid(), signal.SIGINT)

    model.register_forward_pre_hook(interrupt, with_kwargs=True)
    generation = measured(model, prompt=(8, 16, 24), trees=True)
    assert generation.interrupted
    assert [cell.status for cell in generation.cells] == ["done", "done", "interrupted"]
    assert [len(cell.calls) for cell in generation.cells] == [2, 2, 2]
    ended = generation.cells[2].calls[1]
    assert (ended.interrupted, ended.forwards.stage) == (True, ("prefill", "decode"))
    assert len(calls) == 4 * 5 + 2
    assert generation.trees == ()


def test_a_model_without_generate_is_decoded_greedily():
    model = models.OwnModel()
    generation = measured(model, cache=("dynamic", "none", "static"))
    dynamic, without, static = generation.cells
    assert [call.forwards.cached for call in dynamic.calls] == [(0, 8, 9, 10)] * 4
    assert [call.forwards.tokens for call in without.calls] == [(8, 9, 10, 11)] * 4
    assert (static.status, static.error) == ("failed", "cache-unsupported")
    assert "generate" not in vars(model)


def test_a_base_class_does_not_generate():
    model = models.llama().model
    with pytest.raises(InputError, match="LlamaModel does not generate tokens") as raised:
        measured(model)
    assert raised.value.id == "no-generation"
    assert "AutoModelForCausalLM" in raised.value.remedy


def test_a_module_without_cache_does_not_generate():
    with pytest.raises(InputError) as raised:
        measured(torch.nn.Linear(4, 4))
    assert raised.value.id == "no-generation"


@pytest.mark.thorough
def test_a_budget_ends_the_rounds_with_a_call_of_each():
    generation = measured(models.llama(), prompt=(8, 16), budget=1e-9)
    assert [len(cell.calls) for cell in generation.cells] == [2, 2]
    assert [cell.status for cell in generation.cells] == ["done", "done"]
    assert own_warnings(generation) == ["budget-spent"]


@pytest.mark.thorough
def test_work_and_predictions_of_every_cell():
    generation = measured(
        models.llama(), prompt=(8, 16, 32), batch=(1, 2), predict=((3, 24),), memory=True
    )
    for cell in generation.cells:
        stages = [(work.stage, work.cached) for work in cell.work]
        assert stages == [("prefill", 0), ("decode", cell.prompt), ("decode", cell.prompt + 2)]
        assert cell.memory.peak > 0
    assert [(fit.stage, fit.cache_kind) for fit in generation.fits] == [
        ("prefill", "dynamic"),
        ("decode", "dynamic"),
    ]
    (prediction,) = generation.predictions
    assert (prediction.batch, prediction.prompt, prediction.new_tokens) == (3, 24, 4)
    assert generation.largest_batch.context == 32 + 3


def test_given_ids_are_the_prompt():
    model, seen = models.llama(), []
    model.register_forward_pre_hook(
        lambda _module, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True
    )
    ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
    (cell,) = measured(model, inputs=ids, prompt=None).cells
    assert (cell.batch, cell.prompt) == (2, 3)
    assert torch.equal(seen[0], ids)


@pytest.mark.thorough
def test_given_ids_are_repeated_from_the_end():
    model, seen = models.llama(), []
    model.register_forward_pre_hook(
        lambda _module, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True
    )
    inputs = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3).long()}
    measured(model, inputs=inputs, prompt=5, batch=2)
    assert seen[0].tolist() == [[6, 7, 5, 6, 7]] * 2


@pytest.mark.thorough
def test_an_assistant_drafts():
    generation = measured(models.llama(), assistant=models.llama(num_hidden_layers=1), new_tokens=8)
    (cell,) = generation.cells
    assert cell.status == "done", cell.reason
    assert all(call.forwards.indices("draft") for call in cell.calls)
    assert generation.assistant.name == "LlamaForCausalLM"


@pytest.mark.thorough
def test_beams():
    (cell,) = measured(models.llama(), beams=3).cells
    assert (cell.status, cell.beams) == ("done", 3)
    assert {call.sequences for call in cell.calls} == {3}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "make",
    [
        models.t5,
        *(
            pytest.param(make, marks=pytest.mark.thorough)
            for make in (models.mamba, models.mixtral, models.deepseek)
        ),
    ],
)
def test_architectures(make):
    generation = measured(make(), prompt=6)
    (cell,) = generation.cells
    assert (cell.status, cell.prompt, cell.new_tokens) == ("done", 6, 4), cell.reason
    assert all(work.flops and work.weight_bytes and work.cache_bytes for work in cell.work)
    assert own_warnings(generation) == []


@pytest.mark.thorough
@pytest.mark.thorough
def test_features_are_as_long_as_the_encoder_takes_them():
    (cell,) = measured(models.whisper(), prompt=8).cells
    assert (cell.status, cell.prompt) == ("done", 50), cell.reason


@pytest.mark.thorough
def test_trees_of_a_prefill_and_a_step():
    generation = measured(models.llama(), prompt=(8, 16), batch=(2, 1), trees=True)
    assert [(tree.stage, tree.cached, tree.cell) for tree in generation.trees] == [
        ("prefill", 0, 3),
        ("decode", 18, 3),
    ]
    for tree, work in zip(generation.trees, generation.cells[3].work[::2], strict=True):
        assert tree.cost.flops == work.flops
        assert any(node.path == "model.layers.0.self_attn" for node in tree.cost.nodes)


def test_energy_is_of_a_call_and_of_one_that_makes_a_token(monkeypatch):
    """A call of 4 tokens takes 22 J, one of a single token 10 J: 4 J a token after the first."""
    pytest.importorskip("zeus")
    model, asked, forwards = models.llama(), [], []

    def joules(call, device, *, samples, tokens):
        forwards.clear()
        call()
        asked.append((len(forwards), samples, tokens))
        value = 6.0 + 4.0 * len(forwards)
        ends = Interval(low=value - 0.3, high=value + 0.3, scope="process")
        counter = EnergyCounter(name="package 0", part="package", joules=value, idle_power=9.0,
                                resolution=0.01, period=1e-3)  # fmt: skip
        return Energy(joules=value, interval=ends, above_idle=1.0, per_token=value / tokens,
                      counters=(counter,))  # fmt: skip

    monkeypatch.setattr("torchgauge.measure.generation.generation.of_calls", joules)
    model.register_forward_pre_hook(lambda *_: forwards.append(1))
    generation = measured(model, energy=True)
    assert asked == [(4, 1, 4), (1, 1, 8)]
    (cell,) = generation.cells
    assert cell.decode_energy == pytest.approx((4.0, 0.2))
    shown = dict(words.energies(generation))
    assert shown["of that, to the first token"] == "10.0 J, 1.25 J a token of the prompt"
    assert shown["a token after the first"] == "4.00 J ± 200 mJ, by the calls' difference"
    assert shown["package 0"] == "idle 9.00 W, steps of 10 mJ every 1.0 ms"
    unknown = msgspec.structs.replace(cell, prefill_energy=Energy(reason="no counter"))
    assert unknown.decode_energy is None
