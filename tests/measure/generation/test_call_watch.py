"""What a watch makes of `generate` and of decode loops, however they run and end."""

import contextlib
import copy
import gc
import os
import threading
import weakref

import pytest
import torch
import transformers
from tests.support.generating_models import PROMPT, generating_model
from transformers import DynamicCache, StaticCache

from torchgauge.api.generations import measure_generation
from torchgauge.errors import InputError
from torchgauge.measure.generation import forwards as timing
from torchgauge.measure.generation.call_watch import CallWatch


@pytest.fixture(scope="module")
def made():
    return generating_model("llama")


@pytest.fixture
def model(made):
    return made.model


@pytest.fixture
def ids(made):
    return made.inputs["input_ids"]


def stages(call):
    forwards = call.forwards
    return list(zip(forwards.stage, forwards.tokens, forwards.cached, strict=True))


@torch.no_grad()
def decode(model, ids, steps, cache, chunk=None):
    """A decode loop as programs write it."""
    for part in ids.split(chunk or ids.shape[1], dim=1):
        output = model(part, past_key_values=cache, use_cache=True)
    for _ in range(steps):
        ids = output.logits[:, -1:].argmax(-1)
        output = model(input_ids=ids, past_key_values=cache, use_cache=True)
    return output


STEPS = [("prefill", PROMPT, 0), ("decode", 1, PROMPT), ("decode", 1, PROMPT + 1)]


def test_an_end_token_in_the_first_step_ends_the_call(model, ids):
    first = model.generate(ids[:1], max_new_tokens=1, do_sample=False)[0, -1].item()
    with CallWatch(model) as watch:
        model.generate(ids[:1], max_new_tokens=5, do_sample=False, eos_token_id=first)
    (call,) = watch.calls
    assert (call.new_tokens, stages(call)) == (1, STEPS[:1])
    assert call.first_token == call.duration
    assert call.per_token is None
    assert call.emitted == ()


def test_no_new_tokens_is_the_same_error(model, ids):
    with pytest.raises(ValueError, match="max_new_tokens") as bare:
        model.generate(ids, max_new_tokens=0)
    with CallWatch(model) as watch, pytest.raises(ValueError, match="max_new_tokens") as watched:
        model.generate(ids, max_new_tokens=0)
    (call,) = watch.calls
    assert str(watched.value) == str(bare.value)
    assert (call.error, call.new_tokens, len(call.forwards)) == ("ValueError", 0, 0)
    assert call.first_token is None
    with pytest.raises(InputError, match="at least 1, not 0") as refused:
        measure_generation(model, new_tokens=0)
    assert "transformers refuses max_new_tokens=0" in refused.value.cause


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_ends_a_call_keeps_its_steps(model, ids, error):
    def stop(*arguments):
        nonlocal left
        left -= 1
        if not left:
            raise error

    left = 3
    with CallWatch(model) as watch:
        hook = model.model.layers[1].register_forward_pre_hook(stop)
        try:
            with pytest.raises(error):
                model.generate(ids, max_new_tokens=5)
        finally:
            hook.remove()
        model.generate(ids, max_new_tokens=2)
    stopped, after = watch.calls
    assert (stopped.error, stopped.interrupted) == (error.__name__, error is KeyboardInterrupt)
    assert (stopped.new_tokens, stages(stopped)) == (2, STEPS)
    assert (after.by, after.error, after.new_tokens) == ("generate", "", 2)
    assert stages(after) == STEPS[:2]


def test_ctrl_c_in_a_loop_keeps_its_steps(model, ids):
    def stop(*arguments):
        raise KeyboardInterrupt

    watch = CallWatch(model)
    with contextlib.suppress(KeyboardInterrupt), watch:
        decode(model, ids, 2, DynamicCache())
        stop()
    (call,) = watch.calls
    assert (call.interrupted, stages(call)) == (True, STEPS)


def test_padding_is_part_of_the_prompt(model, ids):
    mask = torch.ones_like(ids)
    mask[0, :4] = 0  # the first of two prompts is shorter
    with CallWatch(model) as watch:
        model.generate(ids, attention_mask=mask, max_new_tokens=3)
    (call,) = watch.calls
    assert (call.prompt, call.batch, stages(call)) == (PROMPT, 2, STEPS)


def test_embeddings_are_a_prompt_too(model, ids):
    embeddings = model.get_input_embeddings()(ids).detach()
    with CallWatch(model) as watch:
        output = model.generate(inputs_embeds=embeddings, max_new_tokens=3)
    (call,) = watch.calls
    assert output.shape[1] == call.new_tokens == 3
    assert stages(call) == STEPS


@pytest.mark.parametrize("whole", [True, False])
def test_a_prompt_continues_a_cache(model, ids, whole):
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(ids[:, :5], past_key_values=cache)
    inputs = {"input_ids": ids if whole else ids[:, 5:], "attention_mask": torch.ones_like(ids)}
    with CallWatch(model) as watch:
        model.generate(**inputs, past_key_values=cache, max_new_tokens=3)
    (call,) = watch.calls
    assert stages(call) == [("prefill", PROMPT - 5, 5), *STEPS[1:]]
    assert (call.prompt, call.new_tokens) == (PROMPT, 3)


def test_without_a_cache_steps_compute_all_again(model, ids):
    with CallWatch(model) as watch:
        model.generate(ids, max_new_tokens=3, use_cache=False)
    (call,) = watch.calls
    assert stages(call) == [("prefill", 9, 0), ("decode", 10, 0), ("decode", 11, 0)]
    assert (call.cache, call.emitted) == (None, (1, 1))


def test_drafts_are_apart_and_accepted_tokens_are_counted(model, ids):
    draft = generating_model("llama").model  # the same weights: every draft is accepted
    with CallWatch(model) as watch:
        output = model.generate(ids[:1], max_new_tokens=9, assistant_model=draft, do_sample=False)
    (call,) = watch.calls
    assert call.new_tokens == output.shape[1] - PROMPT == 9
    assert call.forwards.indices("draft")
    assert sum(call.emitted) < 9
    assert max(call.emitted) > 1
    checked = [call.forwards.tokens[index] for index in call.forwards.indices("decode")]
    assert all(e <= t for e, t in zip(call.emitted, checked, strict=True))
    assert "_compiled_call_impl" not in vars(draft)


def test_a_model_drafts_for_itself(model, ids):
    with CallWatch(model) as watch:
        model.generate(ids[:1], max_new_tokens=6, assistant_early_exit=1, do_sample=False)
    (call,) = watch.calls
    assert call.forwards.indices("draft")
    assert call.new_tokens == 6


def test_caches_and_tokens_divide_loops(model, ids):
    with CallWatch(model) as watch:
        cache = DynamicCache()
        decode(model, ids, 2, cache)
        decode(model, ids[:, :4], 1, cache)  # the next turn of a conversation
        decode(model, ids, 1, DynamicCache(), chunk=5)
        decode(model, ids, 2, StaticCache(config=model.config, max_cache_len=32))
        with torch.no_grad():
            model(ids)
            model(ids)
    turns = [stages(call) for call in watch.calls]
    assert turns == [
        STEPS,
        [("prefill", 4, PROMPT + 2), ("decode", 1, PROMPT + 6)],
        [("prefill", 5, 0), ("prefill", 4, 5), ("decode", 1, PROMPT)],
        STEPS,
        STEPS[:1],
        STEPS[:1],
    ]
    assert [call.new_tokens for call in watch.calls] == [3, 2, 2, 3, 1, 1]
    held = [call.cache and call.cache.positions for call in watch.calls]
    assert held == [None, PROMPT + 7, PROMPT + 1, PROMPT + 2, None, None]
    static = watch.calls[3].cache
    assert static.held > static.used == static.formula
    assert "32 positions are allocated, 11 hold tokens" in static.reason


def test_loops_in_turns_are_two_calls(model, ids):
    caches = DynamicCache(), DynamicCache()
    with CallWatch(model) as watch, torch.no_grad():
        for part in (ids, ids[:, :1], ids[:, :1]):
            for cache in caches:
                model(part, past_key_values=cache)
    first, second = watch.calls
    assert (stages(first), stages(second)) == (STEPS, STEPS)
    # The first cache was out of sight when its loop ended: what it took then is not known.
    assert (first.cache, second.cache.positions) == (None, PROMPT + 2)


def test_a_loop_that_rejects_drafts_is_one_call(model, ids):
    cache, draft = DynamicCache(), generating_model("llama").model
    with CallWatch(model, draft) as watch, torch.no_grad():
        model(ids, past_key_values=cache)
        for _ in range(2):
            draft(ids[:, :1])
            model(ids[:, :3], past_key_values=cache)
            cache.crop(-2)
    (call,) = watch.calls
    drafts = [stage for stage in stages(call) if stage[0] != "draft"]
    assert drafts == [("prefill", 9, 0), ("decode", 3, 9), ("decode", 3, 10)]
    assert len(call.forwards.indices("draft")) == 2


def test_threads_have_calls_of_their_own(model, ids):
    ready = threading.Barrier(3)

    def generate(tokens):
        ready.wait()
        for _ in range(3):
            model.generate(ids, max_new_tokens=tokens)

    with CallWatch(model) as watch:
        threads = [threading.Thread(target=generate, args=(tokens,)) for tokens in (2, 3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(len(call.forwards) for call in watch.calls) == [2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert all(stages(call)[:2] == STEPS[:2] for call in watch.calls)
    assert "_compiled_call_impl" not in vars(model)


def test_nothing_is_recorded_in_a_fork(model, ids):
    with CallWatch(model) as watch:
        model.generate(ids, max_new_tokens=2)
        child = os.fork()
        if not child:
            untouched = "generate" not in vars(model) and model._compiled_call_impl is None
            os._exit(0 if untouched and watch.calls == () else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(watch.calls) == 1


def test_a_pipeline_is_watched(model, ids):
    class Pipeline:
        def __init__(self, model):
            self.model = model

        def __call__(self):
            return self.model.generate(ids, max_new_tokens=3)

    pipeline = Pipeline(model)
    with CallWatch(pipeline) as watch:
        pipeline()
    assert [stages(call) for call in watch.calls] == [STEPS]


def test_a_copy_made_meanwhile_is_not_watched(model, ids):
    with CallWatch(model) as watch:
        twin = copy.deepcopy(model)
        assert torch.equal(
            twin.generate(ids, max_new_tokens=2), model.generate(ids, max_new_tokens=2)
        )
    assert len(watch.calls) == 1
    assert twin._compiled_call_impl is None


def test_the_last_cache_is_kept_until_the_next_call(model, ids):
    with CallWatch(model) as watch:
        cache = DynamicCache()
        decode(model, ids, 1, cache)
        reference = weakref.ref(cache)
        del cache
        gc.collect()
        assert reference() is not None
        with torch.no_grad():
            model(ids)
        gc.collect()
        assert reference() is None
        cache = DynamicCache()
        decode(model, ids, 1, cache)
        reference = weakref.ref(cache)
        del cache
    gc.collect()
    assert reference() is None
    sizes = [call.cache and call.cache.positions for call in watch.calls]
    assert sizes == [PROMPT + 1, None, PROMPT + 1]


def test_own_generate_of_any_module_is_watched(ids):
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(100, 100)

        def forward(self, ids):
            return self.embedding(ids)

        def generate(self, ids, tokens):
            for _ in range(tokens):
                ids = torch.cat([ids, self(ids)[:, -1:].argmax(-1)], dim=1)
            return ids

    own = Own()
    with CallWatch(own) as watch:
        own.generate(ids, 3)
    (call,) = watch.calls
    assert [stage for stage, _, _ in stages(call)] == ["prefill", "decode", "decode"]
    assert (call.new_tokens, call.prompt) == (3, PROMPT)


def test_device_times_come_from_events(model, ids, monkeypatch):
    class Event:
        clock = 0

        def __init__(self):
            Event.clock += 2
            self.at = Event.clock

        def synchronize(self):
            synchronized.append(self)

        def elapsed_time(self, other):
            return other.at - self.at

    synchronized = []
    monkeypatch.setattr(timing, "_events", lambda module: Event)
    with CallWatch(model) as watch:
        model.generate(ids, max_new_tokens=3)
        assert not synchronized
    (call,) = watch.calls
    assert call.forwards.device == (0.002,) * 3
    assert call.prefill == 0.002


def test_a_length_on_the_device_is_not_read_meanwhile(model, ids, monkeypatch):
    reads = []
    to_int = torch.Tensor.__int__
    monkeypatch.setattr(torch.Tensor, "__int__", lambda tensor: reads.append(1) or to_int(tensor))
    cache = StaticCache(config=model.config, max_cache_len=32)
    decode(model, ids[:, :4], 0, cache)
    with CallWatch(model) as watch:
        decode(model, ids[:, 4:], 2, cache)
        assert not reads
        assert [stages(call) for call in watch.calls] == [[("prefill", 5, 4), *STEPS[1:]]]
        assert reads


def test_what_is_no_model_is_refused():
    with pytest.raises(Exception, match="A str is not a model"):
        CallWatch("llama")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["module", "compile", "forward"])
def test_compiled_models_are_not_compiled_again(ids, how):
    torch._dynamo.reset()
    model = generating_model("llama").model
    called = model
    if how == "module":
        called = torch.compile(model, backend="eager")
    elif how == "compile":
        model.compile(backend="eager")
    else:
        model.forward = torch.compile(model.forward, backend="eager")
    with torch.no_grad():
        bare = called(ids).logits
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        with CallWatch(called) as watch:
            assert torch.equal(called(ids).logits, bare)
        called(ids)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    assert [stages(call) for call in watch.calls] == [STEPS[:1]]


@pytest.mark.thorough
def test_the_compiled_call_of_static_caches_is_timed(ids):
    torch._dynamo.reset()
    model = generating_model("llama").model
    compilation = transformers.CompileConfig(backend="eager")
    compilation._compile_all_devices = True
    options = {"max_new_tokens": 3, "do_sample": False, "cache_implementation": "static"}
    with CallWatch(model) as watch:
        compiled = model.generate(ids, **options, compile_config=compilation)
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    model.generate(ids, **options, compile_config=compilation)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs > 0
    assert torch.equal(compiled, model.generate(ids, **options))
    assert [stages(call) for call in watch.calls] == [STEPS]
    assert "get_compiled_call" not in vars(model)
