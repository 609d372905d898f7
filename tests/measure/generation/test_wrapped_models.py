"""Models within others: images, adapters, parallel wrappers, a part that generates."""

import pytest
import torch
import transformers
from tests.support.generating_models import PROMPT, generating_model
from tests.support.image_models import MODELS, image_model
from tests.support.watched_generation import MODES, check_watched
from torch import nn

from torchgauge.api.generations import measure_generation
from torchgauge.measure.generation.call_watch import CallWatch

BARE = {"effort": "quick", "trees": False, "memory": False, "roofs": False, "progress": False}
GROUPS = []
QUICK = ("blip2", "mllama")
REFUSED = {("blip2", "chunked"), ("mllama", "chunked")}  # by the models themselves
CASES = [
    pytest.param(name, mode, marks=() if name in QUICK and mode == "greedy" else pytest.mark.slow)
    for name in MODELS
    for mode in MODES
]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_a_prompt_with_an_image_is_watched(name, mode):
    assert check_watched(image_model(name), mode) == ((name, mode) not in REFUSED)


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in MODELS if n not in QUICK)]
)
def test_a_prompt_with_an_image_is_measured(name):
    made = image_model(name)
    (cell,) = measure_generation(made.model, made.inputs, new_tokens=4, **BARE).cells
    assert (cell.status, cell.prompt, cell.new_tokens) == ("done", PROMPT, 4), cell.reason
    prefill, first, last = cell.work
    assert (first.cached, last.cached) == (PROMPT, PROMPT + 2)
    assert prefill.matmul_flops > PROMPT * first.matmul_flops / 2
    assert last.matmul_flops > first.matmul_flops


def test_a_layer_of_image_positions_has_no_formula():
    made = image_model("mllama")
    with CallWatch(made.model) as watch:
        made.model.generate(**made.inputs, max_new_tokens=5, do_sample=False)
    (call,) = watch.calls
    position = 2 * 2 * 2 * 8 * 4  # keys and values of a layer: 2 sequences, 2 heads of 8 floats
    assert call.cache.held == call.cache.used == (PROMPT + 4 + 5) * position
    assert call.cache.formula is None
    assert "positions of their own" in call.cache.reason


class Chat(nn.Module):
    """A model of one's own around one that generates."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def generate(self, ids, max_new_tokens=20):
        return self.model.generate(ids, max_new_tokens=max_new_tokens, do_sample=False)[:, PROMPT:]


class Adapted(Chat):
    """One that takes the configuration of generation of what it wraps, as adapters do."""

    def __init__(self, model):
        super().__init__(model)
        self.generation_config = model.generation_config
        self.config = model.config

    def get_base_model(self):
        return self.model

    def generate(self, input_ids, **options):
        return self.model.generate(input_ids, **options)


def test_a_part_that_generates_is_the_model():
    made = generating_model("llama")
    chat = Chat(made.model)
    with CallWatch(chat) as watch:
        answer = chat.generate(made.inputs["input_ids"], max_new_tokens=3)
    assert answer.shape == (2, 3)
    (call,) = watch.calls
    assert (call.prompt, call.new_tokens, call.batch) == (PROMPT, 3, 2)
    assert call.forwards.stage == ("prefill", "decode", "decode")
    assert call.cache.formula == call.cache.held


def test_of_two_parts_that_generate_none_is_chosen():
    both = nn.ModuleList([generating_model("llama").model, generating_model("gpt2").model])
    with CallWatch(both) as watch:
        both[0].generate(torch.tensor([[5, 6]]), max_new_tokens=2)
    assert watch.calls == ()


@pytest.mark.parametrize("wrapper", [Adapted, nn.DataParallel])
def test_a_wrapped_model_makes_as_many_tokens_as_requested(wrapper):
    model = wrapper(generating_model("llama").model)
    (cell,) = measure_generation(model, prompt=8, new_tokens=4, **BARE).cells
    assert (cell.status, cell.new_tokens, cell.prompt) == ("done", 4, 8), cell.reason
    assert cell.cache.formula == cell.cache.held


@pytest.mark.parametrize("kind", ["LoraConfig", "PromptTuningConfig", "PrefixTuningConfig"])
def test_adapters_of_peft(kind):
    peft = pytest.importorskip("peft")
    made = generating_model("llama")
    virtual = {} if kind == "LoraConfig" else {"num_virtual_tokens": 4}
    targets = {} if virtual else {"target_modules": ["q_proj"]}
    config = getattr(peft, kind)(task_type="CAUSAL_LM", **virtual, **targets)
    model = peft.get_peft_model(made.model, config).eval()
    if not virtual:
        made.model = model
        assert all(check_watched(made, mode) for mode in MODES)
    (cell,) = measure_generation(model, prompt=8, new_tokens=4, **BARE).cells
    assert (cell.status, cell.new_tokens) == ("done", 4), cell.reason
    assert {call.prompt for call in cell.calls} == {12 if virtual else 8}
    assert cell.cache.formula == cell.cache.held


@pytest.mark.parametrize("virtual", [4, 8])
def test_chunks_behind_virtual_tokens_are_no_decode_steps(virtual):
    peft = pytest.importorskip("peft")
    made = generating_model("llama")
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=virtual)
    model = peft.get_peft_model(made.model, config).eval()
    options = {"max_new_tokens": 5, "do_sample": False, "prefill_chunk_size": 4}
    bare = model.generate(**made.inputs, **options)
    with CallWatch(model) as watch:
        assert torch.equal(model.generate(**made.inputs, **options), bare)
    (call,) = watch.calls
    # 9 tokens in chunks of 4; of all chunks but the first, peft gives the model the last token.
    assert call.forwards.stage == ("prefill",) * 3 + ("decode",) * 4
    assert call.forwards.tokens == (virtual + 4, *(1,) * 6)
    assert (call.prompt, call.new_tokens, len(call.emitted)) == (virtual + 6, 5, 4)
    third = call.forwards.begin[2] + call.forwards.duration[2]
    assert third <= call.first_token <= call.forwards.begin[3]
    assert call.cache.held == call.cache.used == call.cache.formula


@pytest.mark.parametrize("lookup", [None, 2])
def test_the_configuration_s_chunks_divide_no_checked_prompt(lookup):
    made = generating_model("llama")
    ids = made.inputs["input_ids"][:1]
    made.model.generation_config.prefill_chunk_size = 4
    with CallWatch(made.model) as watch:
        made.model.generate(ids, max_new_tokens=5, do_sample=False, prompt_lookup_num_tokens=lookup)
    (call,) = watch.calls
    assert call.forwards.stage[:4] == ("prefill",) * (1 if lookup else 3) + ("decode",) * (
        3 if lookup else 1
    )
    assert call.new_tokens == 5


def test_a_distributed_model(tmp_path):
    import torch.distributed as dist

    if not dist.is_gloo_available():
        pytest.skip("torch has no gloo")
    made = generating_model("llama")
    ids = made.inputs["input_ids"]
    bare = made.model.generate(ids, max_new_tokens=3, do_sample=False)
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(made.model)
        with CallWatch(wrapped) as watch, torch.no_grad():
            assert torch.equal(
                wrapped.module.generate(ids, max_new_tokens=3, do_sample=False), bare
            )
            outputs = wrapped(ids, use_cache=True)
            wrapped(ids[:, :1], past_key_values=outputs.past_key_values, use_cache=True)
        (cell,) = measure_generation(wrapped, prompt=8, new_tokens=4, **BARE).cells
    finally:
        # torch frees it while it holds Python's lock, for which its threads may still wait.
        GROUPS.append(dist.group.WORLD)
        dist.destroy_process_group()
    generated, loop = watch.calls
    assert generated.forwards.stage == ("prefill", "decode", "decode")
    assert (loop.by, loop.forwards.stage) == ("loop", ("prefill", "decode"))
    assert (cell.status, cell.new_tokens) == ("done", 4), cell.reason


def test_continuous_batching_is_in_no_call():
    import torchgauge as tg

    model = generating_model("llama").model
    model.generation_config.eos_token_id = 2
    small = transformers.ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=64)

    def answers():
        outputs = model.generate_batch(
            [[5, 6, 7], [8, 9, 10, 11, 12]], max_new_tokens=4, continuous_batching_config=small
        )
        return [output.generated_tokens for output in outputs.values()]

    bare = answers()
    with tg.watch_generation(model) as watch:
        assert answers() == bare
        model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=2, min_new_tokens=2)
    (call,) = watch.calls
    assert (call.by, call.new_tokens) == ("generate", 2)
    (warning,) = watch.warnings
    assert warning.id == "continuous-batching"
    assert warning.message.startswith("4 forwards")
