"""Tiny language models with random weights, and models of our own that generate."""

import functools

import torch
from torch import nn

HIDDEN, LAYERS, HEADS, KEY_HEADS, INNER, WORDS = 64, 2, 4, 2, 128, 1000
_LLAMA_LIKE = {
    "vocab_size": WORDS,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _made(kind, config):
    torch.manual_seed(0)
    return kind(config).eval()


def llama(**options):
    from transformers import LlamaConfig, LlamaForCausalLM

    return _made(LlamaForCausalLM, LlamaConfig(**{**_LLAMA_LIKE, **options}))


def gpt2(**options):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = {
        "vocab_size": WORDS, "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": HEADS,
        "n_positions": 128, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    return _made(GPT2LMHeadModel, GPT2Config(**{**config, **options}))


def mixtral(**options):
    from transformers import MixtralConfig, MixtralForCausalLM

    experts = {"num_local_experts": 8, "num_experts_per_tok": 2}
    return _made(MixtralForCausalLM, MixtralConfig(**{**_LLAMA_LIKE, **experts, **options}))


def mamba(**options):
    from transformers import MambaConfig, MambaForCausalLM

    config = {"vocab_size": WORDS, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS}
    return _made(MambaForCausalLM, MambaConfig(**{**config, **options}))


def deepseek(**options):
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    config = {
        **_LLAMA_LIKE, "num_key_value_heads": HEADS, "moe_intermediate_size": 32,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
        "first_k_dense_replace": 1, "kv_lora_rank": 16, "q_lora_rank": 32, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "qk_nope_head_dim": 16, "n_shared_experts": 1,
    }  # fmt: skip
    return _made(DeepseekV3ForCausalLM, DeepseekV3Config(**{**config, **options}))


def t5(**options):
    from transformers import T5Config, T5ForConditionalGeneration

    config = {
        "vocab_size": WORDS, "d_model": HIDDEN, "d_kv": 16, "d_ff": INNER, "num_layers": LAYERS,
        "num_heads": HEADS,
    }  # fmt: skip
    return _made(T5ForConditionalGeneration, T5Config(**{**config, **options}))


def whisper(**options):
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = {
        "vocab_size": WORDS, "d_model": HIDDEN, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": INNER,
        "decoder_ffn_dim": INNER, "max_source_positions": 50, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3,
        "begin_suppress_tokens": None, "suppress_tokens": None,
    }  # fmt: skip
    return _made(WhisperForConditionalGeneration, WhisperConfig(**{**config, **options}))


class OwnModel(nn.Module):
    """Takes (ids, past_key_values=…, use_cache=True), and has no `generate()`.

    Its cache is the embeddings of all tokens, as keys and values of one layer.
    """

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, HIDDEN)
        self.head = nn.Linear(HIDDEN, WORDS, bias=False)

    def forward(self, ids, past_key_values=None, use_cache=False):
        keys = self.table(ids)[:, None]
        if past_key_values is not None:
            keys = torch.cat([past_key_values[0][0], keys], dim=-2)
        logits = self.head(keys[:, 0].cumsum(dim=1)[:, -ids.shape[1] :])
        return (logits, ((keys, keys),)) if use_cache else (logits,)


class Raising(nn.Module):
    """A layer that raises an error where a tensor has more positions than a limit."""

    def __init__(self, layer, limit, error):
        super().__init__()
        self.layer, self.limit, self.error = layer, limit, error

    def forward(self, x):
        if x.shape[0] * x.shape[1] > self.limit:
            raise self.error
        return self.layer(x)


def raising_above(limit, error, make=llama):
    """A model that raises an error for more than so many tokens at once."""
    model = make()
    model.lm_head = Raising(model.lm_head, limit, error)
    model.prepare_inputs_for_generation = functools.partial(
        _all_logits, model.prepare_inputs_for_generation
    )
    return model


def _all_logits(prepare, *args, **kwargs):
    return prepare(*args, **{**kwargs, "logits_to_keep": 0})
