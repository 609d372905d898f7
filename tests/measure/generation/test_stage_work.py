"""The work of a prefill and of decode steps, against closed forms from configurations."""

import pytest
import torch
from tests.support import language_models as models
from tests.support.language_models import HEADS, HIDDEN, INNER, KEY_HEADS, LAYERS, WORDS

import torchgauge as tg
from torchgauge.api.generations import measure_generation
from torchgauge.measure.generation.stage_work import counted
from torchgauge.measure.generation.watched_modules import captured_stages, whole_prefill
from torchgauge.records.generation.call import Forwards, GenerationCall
from torchgauge.targets.builds.source import Source

BATCH, PROMPT, NEW, SIZE = 2, 12, 5, HIDDEN // HEADS
LAST = PROMPT + NEW - 2  # positions cached before the last step
FLOAT = 4
POSITION = 2 * KEY_HEADS * SIZE * FLOAT * LAYERS * BATCH  # bytes of keys and values


def cell(model, **options):
    options = {"prompt": PROMPT, "batch": BATCH, "new_tokens": NEW, **options}
    bare = {"effort": "quick", "trees": False, "memory": False, "roofs": False, "progress": False}
    (measured,) = measure_generation(model, **bare, **options).cells
    assert measured.done, measured.reason
    return measured


def closed_form(
    tokens,
    context,
    *,
    keys=KEY_HEADS,
    size=SIZE,
    inner=INNER,
    matrices=3,
    experts=None,
    window=None,
):
    """FLOPs of products: 2 × weights × tokens, and 4 × heads × size × pairs; logits of one token.

    `experts` is (experts, those of a token).
    """
    every, used = experts or (0, 1)
    attention = 2 * HIDDEN * HEADS * size + 2 * HIDDEN * keys * size
    layer = attention + used * matrices * HIDDEN * inner + HIDDEN * every
    pairs = tokens * min(context, window if tokens == 1 and window else context)
    linear = 2 * (LAYERS * layer * tokens + HIDDEN * WORDS)
    return BATCH * (linear + LAYERS * 4 * HEADS * size * pairs)


def latent_attention(tokens, context):
    """DeepSeek's: keys and values of the whole context are made anew of its latents."""
    rank, rotary, plain, value, query = 16, 8, 16, 16, 32
    projections = HIDDEN * query + query * HEADS * (plain + rotary) + HIDDEN * (rank + rotary)
    attention = LAYERS * (projections + HEADS * value * HIDDEN) * tokens
    attention += LAYERS * rank * HEADS * (plain + value) * context
    dense, shared = 3 * HIDDEN * INNER, 3 * HIDDEN * 32
    mixture = HIDDEN * 8 + 2 * 3 * HIDDEN * 32 + shared
    linear = 2 * (attention + (dense + mixture) * tokens + HIDDEN * WORDS)
    products = LAYERS * 2 * HEADS * (plain + rotary + value) * tokens * context
    return BATCH * (linear + products)


def _other(name, **options):
    import transformers

    config = {
        "vocab_size": WORDS, "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip
    if name != "GPTNeoX":
        config["num_key_value_heads"] = KEY_HEADS
    torch.manual_seed(0)
    made = getattr(transformers, f"{name}Config")(**{**config, **options})
    return transformers.AutoModelForCausalLM.from_config(made).eval()


EXPERTS = {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "head_dim": 16}
CONFIGS = {
    "llama": (models.llama, {}),
    "mixtral": (models.mixtral, {"experts": (8, 2)}),
    "multi-head": (lambda: models.llama(num_key_value_heads=HEADS), {"keys": HEADS}),
    "window": (lambda: _other("Mistral", sliding_window=8), {"window": 8}),
    "qwen2": (lambda: _other("Qwen2"), {}),
    "wide heads": (lambda: _other("Gemma", head_dim=32), {"size": 32}),
    "joined matrices": (lambda: _other("Phi3"), {}),
    "gpt2": (models.gpt2, {"keys": HEADS, "matrices": 2, "inner": 4 * HIDDEN}),
    "neox": (lambda: _other("GPTNeoX"), {"keys": HEADS, "matrices": 2}),
    "qwen3 mixture": (lambda: _other("Qwen3Moe", **EXPERTS), {"experts": (8, 2), "inner": 32}),
}
QUICK = ("llama", "mixtral")


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(n, marks=pytest.mark.thorough) for n in [*CONFIGS][2:])]
)
def test_products_are_those_of_the_configuration(name):
    make, form = CONFIGS[name]
    prefill, first, last = cell(make()).work
    assert (first.cached, last.cached) == (PROMPT, LAST)
    assert prefill.matmul_flops == closed_form(PROMPT, PROMPT, **form)
    assert first.matmul_flops == closed_form(1, PROMPT + 1, **form)
    assert last.matmul_flops == closed_form(1, LAST + 1, **form)
    assert not last.at_least


def test_latent_attention_makes_keys_of_the_whole_context():
    prefill, _, last = cell(models.deepseek()).work
    assert prefill.matmul_flops == latent_attention(PROMPT, PROMPT)
    assert last.matmul_flops == latent_attention(1, LAST + 1)
    # Latents and rotary keys, without heads: read with the step's own, which is written.
    position = (16 + 8) * FLOAT * LAYERS * BATCH
    assert last.cache_bytes == (LAST + 1) * position + position


@pytest.mark.parametrize("tied", [False, True])
def test_an_embedding_table_is_read_where_it_is_the_output_layer_too(tied):
    model = models.llama(tie_word_embeddings=tied)
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    table = 0 if tied else model.get_input_embeddings().weight.nbytes
    for work in cell(model).work:
        assert work.weight_bytes == parameters - table


def test_a_cache_that_grows_is_read_once_and_written_where_it_grew():
    prefill, first, last = cell(models.llama()).work
    assert prefill.cache_bytes == 2 * PROMPT * POSITION
    assert first.cache_bytes == (PROMPT + 1) * POSITION + POSITION
    assert last.cache_bytes == (LAST + 1) * POSITION + POSITION


def test_a_static_cache_is_read_at_its_full_length():
    _, first, last = cell(models.llama(), cache="static").work
    counts = 2 * LAYERS * 8  # each layer's count of positions is read and written
    full = PROMPT + NEW - 1
    assert first.cache_bytes == last.cache_bytes == full * POSITION + POSITION + counts


def test_states_are_read_and_written_whole():
    _, _, last = cell(models.mamba()).work
    states = LAYERS * BATCH * 2 * HIDDEN * (4 + 16) * FLOAT  # of the convolution, and recurrent
    assert last.cache_bytes == 2 * states


def test_only_experts_that_tokens_are_sent_to_are_read():
    model = models.mixtral()
    prefill, _, last = cell(model).work
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    without_table = parameters - model.get_input_embeddings().weight.nbytes
    expert = 3 * HIDDEN * INNER * FLOAT
    assert 2 <= last.experts <= 2 * BATCH
    for work in (prefill, last):
        idle = LAYERS * (8 - work.experts)
        assert work.weight_bytes == without_table - idle * expert


def test_without_experts_their_number_is_unknown():
    assert {work.experts for work in cell(models.gpt2()).work} == {None}


def _captured(model, **options):
    """The forwards of a generation of three tokens, and the placement to count them on."""
    ids = torch.full((BATCH, PROMPT), 5)
    encoder = ("encoder",) if model.config.is_encoder_decoder else ()
    stages = (*encoder, "prefill", "decode", "decode")
    call = GenerationCall(
        by="generate", batch=BATCH, sequences=BATCH, prompt=PROMPT, new_tokens=3, duration=1.0,
        forwards=Forwards(stage=stages, cached=(*(0 for _ in encoder), 0, PROMPT, PROMPT + 1)),
    )  # fmt: skip
    config = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    config |= {"decoder_start_token_id": 0} if encoder else {}
    with torch.inference_mode():
        captured = captured_stages(model, lambda: model.generate(ids, **config, **options), call)
    return Source.of_object(model, None, raw=True).open(), captured


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (models.llama, {}),
        (models.llama, {"cache_implementation": "static"}),
        (models.mamba, {}),
        (models.t5, {}),
    ],
)
def test_work_is_the_cost_of_the_same_forward(make, options):
    placement, stages = _captured(make(), **options)
    for forward in (*stages.prefill, stages.first, stages.last):
        cost = tg.count_cost(forward.module, forward.inputs)
        twice = [counted(placement, forward), counted(placement, forward)]
        assert twice[0] == twice[1], "the cache is put back"
        assert twice[0].cost.total() == cost.total()
        parts = twice[0].weights + twice[0].cache + twice[0].activations
        assert parts <= cost.bytes


def test_forwards_are_captured_before_they_run():
    _, stages = _captured(models.llama())
    (prefill,) = stages.prefill
    assert prefill.cache.get_seq_length() == prefill.cached == 0
    assert stages.first.cache.get_seq_length() == stages.first.cached == PROMPT
    assert stages.last.cache.get_seq_length() == stages.last.cached == PROMPT + 1
    assert not any(t.is_inference() for _, t in stages.last.inputs.tensors())


def test_a_prefill_with_its_encoder_is_one_forward():
    placement, stages = _captured(models.t5())
    assert [forward.module is placement.model for forward in stages.prefill] == [False, True]
    whole = whole_prefill(stages.prefill)
    parts = sum(counted(placement, forward).cost.matmul_flops for forward in stages.prefill)
    assert counted(placement, whole).cost.matmul_flops == parts
