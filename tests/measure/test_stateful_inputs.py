"""Inputs with state: every call of a measurement gets what the first one got."""

import pytest
import torch
from tests.support.step_memory import placed
from torch import nn

import torchgauge as tg
from torchgauge.measure.latency import latency
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.step import prepared
from torchgauge.targets.hygiene import input_state

LENGTH = 6


class Grown:
    """A cache that is replaced by a longer one at each call, as a dynamic cache is."""

    def __init__(self):
        self.keys = torch.arange(float(LENGTH)).reshape(LENGTH, 1)
        self.seen = [LENGTH]

    def update(self, x):
        self.keys = torch.cat([self.keys, x])
        self.seen.append(len(self.keys))
        return len(self.keys)


class Written(Grown):
    """A cache of fixed length that is written in place, as a static cache is."""

    def __init__(self):
        self.keys = torch.zeros(32, 1)
        self.position = torch.tensor(LENGTH)
        self.seen = [LENGTH]

    def update(self, x):
        self.position += 1
        self.keys[self.position] = x[0]
        return int(self.position)


class Decoder(nn.Module):
    """Tells the length of the cache that each of its calls saw."""

    def __init__(self, lengths):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.tell = lambda length: lengths.append(length)

    def forward(self, x, cache):
        self.tell(cache.update(self.layer(x).detach()))
        return self.layer(x)


X = torch.ones(1, 1)
FEW = {"iterations": 5, "warmup": 2}
MEASUREMENTS = {
    "count": lambda model, inputs: tg.count_cost(model, inputs),
    "memory": lambda model, inputs: tg.measure_memory(model, inputs),
    "latency": lambda model, inputs: tg.measure_latency(model, inputs, **FEW),
    "stages": lambda model, inputs: tg.measure_latency(
        model, inputs, **FEW, postprocess=lambda outputs: outputs
    ),
    "profile": lambda model, inputs: tg.profile(model, inputs, effort="quick", roofs=None),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [Grown, Written])
@pytest.mark.parametrize("name", MEASUREMENTS)
def test_every_call_sees_the_cache_of_the_first(name, kind):
    lengths = []
    cache = kind()
    keys, content = cache.keys, cache.keys.clone()
    record = MEASUREMENTS[name](Decoder(lengths), {"x": X, "cache": cache})
    assert set(lengths) == {LENGTH + 1}
    assert len(lengths) >= (1 if name == "count" else 4)
    assert cache.keys is keys
    assert torch.equal(keys, content)
    assert cache.seen == [LENGTH]
    warnings = getattr(record, "all_warnings", record.warnings)
    assert "inputs-changed" not in {warning.id for warning in warnings}


def test_lists_and_tensors_are_put_back_before_each_call():
    seen = []

    def model(x, items):
        seen.append((x.tolist(), len(items)))
        x.add_(1)
        items.append(x.clone())
        return x * 2

    x, items = torch.zeros(2), []
    with prepared(placed(model, {"x": x, "items": items})) as step:
        for _ in range(4):
            step()
    assert seen == [([0, 0], 0)] * 4
    assert (x.tolist(), items) == ([0, 0], [])


def test_what_is_put_back_is_no_part_of_the_call():
    """With a clock that only the restoring moves, calls take no time."""
    clock_time = 0

    cache = Written()

    def model(x, cache):
        cache.update(x)
        return x

    put_back = input_state.InputState.put_back

    def slow(self):
        nonlocal clock_time
        clock_time += 1000
        put_back(self)

    class Clock:
        def now(self):
            return clock_time

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_state.InputState, "put_back", slow)
        options = LatencyOptions(warmup=0, iterations=4)
        run = latency.measure(placed(model, {"x": X, "cache": cache}), options, clock=Clock())
    assert clock_time >= 4000
    assert set(run.samples) == {0.0}


def test_inputs_that_a_call_leaves_alone_are_not_looked_at_again(monkeypatch):
    with prepared(placed(nn.Linear(1, 1), X)) as step:
        step()
        step()
        looks = []
        for name in ("look", "put_back"):
            monkeypatch.setattr(input_state.InputState, name, looks.append)
        step()
    assert looks == []


def test_an_iterator_that_is_used_up_is_refused_by_name():
    with pytest.raises(tg.InputError) as caught:
        tg.measure_latency(
            lambda items: torch.ones(1) * len(list(items)), {"items": iter([1, 2])}, **FEW
        )
    assert caught.value.id == "inputs-used-up"


def test_a_tensor_too_large_to_be_copied_is_named(monkeypatch):
    monkeypatch.setattr(input_state, "COPIED_DIRECTLY", 4)
    with pytest.raises(tg.InputError, match="changes its inputs: x"):
        tg.measure_latency(lambda x: x.add_(1), {"x": torch.zeros(100)}, **FEW)


def test_a_tensor_made_in_inference_mode_is_compared():
    with torch.inference_mode():
        x = torch.zeros(3)
    seen = []

    def model(x):
        seen.append(float(x.sum()))
        x += 1
        return x

    with prepared(placed(model, x)) as step:
        for _ in range(3):
            step()
    assert seen == [0, 0, 0]


@pytest.mark.thorough
@pytest.mark.parametrize("static", [False, True])
def test_a_cache_of_a_language_model_has_the_same_length_at_every_call(static):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=50,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    cache = (
        transformers.StaticCache(config, max_cache_len=32)
        if static
        else transformers.DynamicCache(config=config)
    )
    with torch.no_grad():
        model(torch.arange(16)[None], past_key_values=cache)
    keys = [layer.keys.clone() for layer in cache.layers]
    lengths = []
    model.register_forward_pre_hook(lambda *_: lengths.append(int(cache.get_seq_length())))
    inputs = {"input_ids": torch.ones(1, 1, dtype=torch.long), "past_key_values": cache}
    tg.measure_latency(model, inputs, **FEW)
    tg.measure_memory(model, inputs)
    assert set(lengths) == {16}
    assert int(cache.get_seq_length()) == 16
    assert all(map(torch.equal, keys, (layer.keys for layer in cache.layers)))
