"""Small models of many architectures with random weights, and inputs that they generate from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import transformers as tf

VOCABULARY = 96
PROMPT, BATCH = 9, 2

_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
}
_GROUPED = {**_SIZES, "num_key_value_heads": 2, "head_dim": 8}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_ENCODER_DECODER = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "vocab_size": VOCABULARY,
    "decoder_start_token_id": 1,
}
_LATENT = {
    **_SIZES,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY}


def _config(name: str, **sizes: Any) -> Callable[[], Any]:
    return lambda: getattr(tf, name)(**{**_SPECIAL, **sizes})


def _llava() -> Any:
    vision = tf.CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=16,
        patch_size=8,
        projection_dim=32,
    )
    text = tf.LlamaConfig(**{**_GROUPED, **_SPECIAL})
    return tf.LlavaConfig(
        vision_config=vision, text_config=text, image_token_id=90, vision_feature_layer=-1
    )


CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": _config("LlamaConfig", **_GROUPED),
    "mistral": _config("MistralConfig", **_GROUPED, sliding_window=6),
    "gemma": _config("GemmaConfig", **_GROUPED),
    "gemma2": _config("Gemma2Config", **_GROUPED, sliding_window=6),
    "gemma3": _config("Gemma3TextConfig", **_GROUPED, sliding_window=6),
    "qwen2": _config("Qwen2Config", **_SIZES, num_key_value_heads=2),
    "qwen3": _config("Qwen3Config", **_GROUPED),
    "qwen2-moe": _config(
        "Qwen2MoeConfig",
        **_SIZES,
        **_EXPERTS,
        num_key_value_heads=2,
        shared_expert_intermediate_size=16,
    ),
    "qwen3-moe": _config("Qwen3MoeConfig", **_GROUPED, **_EXPERTS),
    "qwen3-next": _config(
        "Qwen3NextConfig",
        **_GROUPED,
        **_EXPERTS,
        shared_expert_intermediate_size=16,
        layer_types=["linear_attention", "full_attention"],
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
    ),
    "mixtral": _config("MixtralConfig", **_GROUPED, num_local_experts=4, num_experts_per_tok=2),
    "deepseek-v2": _config("DeepseekV2Config", **_LATENT),
    "deepseek-v3": _config("DeepseekV3Config", **_LATENT),
    "gpt2": _config("GPT2Config", **_GPT),
    "gpt-bigcode": _config("GPTBigCodeConfig", **_GPT, multi_query=True),
    "gpt-neo": _config(
        "GPTNeoConfig",
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=6,
        vocab_size=VOCABULARY,
    ),
    "gpt-neox": _config("GPTNeoXConfig", **_SIZES),
    "gpt-j": _config("GPTJConfig", **_GPT, rotary_dim=4),
    "codegen": _config("CodeGenConfig", **_GPT, rotary_dim=4),
    "opt": _config(
        "OPTConfig",
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=VOCABULARY,
        word_embed_proj_dim=32,
    ),
    "bloom": _config("BloomConfig", hidden_size=32, n_layer=2, n_head=4, vocab_size=VOCABULARY),
    "falcon": _config("FalconConfig", **_SIZES, multi_query=True),
    "mpt": _config(
        "MptConfig", d_model=32, n_layers=2, n_heads=4, vocab_size=VOCABULARY, max_seq_len=64
    ),
    "phi": _config("PhiConfig", **_SIZES),
    "phi3": _config("Phi3Config", **_SIZES, num_key_value_heads=2),
    "stablelm": _config("StableLmConfig", **_SIZES, num_key_value_heads=2),
    "starcoder2": _config("Starcoder2Config", **_SIZES, num_key_value_heads=2),
    "cohere": _config("CohereConfig", **_SIZES, num_key_value_heads=2),
    "olmo": _config("OlmoConfig", **_SIZES),
    "olmo2": _config("Olmo2Config", **_SIZES),
    "granite": _config("GraniteConfig", **_SIZES, num_key_value_heads=2),
    "glm": _config("GlmConfig", **_GROUPED),
    "smollm3": _config("SmolLM3Config", **_SIZES, num_key_value_heads=2),
    "ernie": _config("Ernie4_5Config", **_GROUPED),
    "gpt-oss": _config(
        "GptOssConfig",
        **_GROUPED,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=6,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "mamba": _config(
        "MambaConfig", hidden_size=32, num_hidden_layers=2, vocab_size=VOCABULARY, state_size=8
    ),
    "mamba2": _config(
        "Mamba2Config",
        hidden_size=32,
        num_hidden_layers=2,
        vocab_size=VOCABULARY,
        state_size=8,
        num_heads=8,
        head_dim=8,
        n_groups=1,
        chunk_size=8,
    ),
    "falcon-mamba": _config(
        "FalconMambaConfig",
        hidden_size=32,
        num_hidden_layers=2,
        vocab_size=VOCABULARY,
        state_size=8,
    ),
    "jamba": _config(
        "JambaConfig",
        **_SIZES,
        num_key_value_heads=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        num_experts=2,
        mamba_d_state=8,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    ),
    "bamba": _config(
        "BambaConfig",
        **_SIZES,
        num_key_value_heads=2,
        attn_layer_indices=[1],
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=8,
        mamba_chunk_size=8,
    ),
    "recurrent-gemma": _config(
        "RecurrentGemmaConfig",
        **_SIZES,
        num_key_value_heads=2,
        lru_width=32,
        attention_window_size=6,
        block_types=["recurrent", "attention"],
    ),
    "zamba2": _config(
        "Zamba2Config",
        **{**_SIZES, "num_hidden_layers": 4},
        num_key_value_heads=4,
        layers_block_type=["mamba", "hybrid"] * 2,
        mamba_d_state=8,
        n_mamba_heads=8,
        mamba_ngroups=1,
        chunk_size=8,
        num_mem_blocks=1,
        use_mem_rope=False,
        adapter_rank=4,
    ),
    "falcon-h1": _config(
        "FalconH1Config",
        **_GROUPED,
        mamba_d_ssm=64,
        mamba_d_state=8,
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_n_groups=1,
        mamba_chunk_size=8,
    ),
    "minimax": _config(
        "MiniMaxConfig",
        **_GROUPED,
        layer_types=["linear_attention", "full_attention"],
        num_local_experts=4,
        num_experts_per_tok=2,
    ),
    "rwkv": _config(
        "RwkvConfig",
        hidden_size=32,
        attention_hidden_size=32,
        num_hidden_layers=2,
        vocab_size=VOCABULARY,
        context_length=64,
    ),
    "llava": _llava,
    "t5": _config(
        "T5Config",
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        vocab_size=VOCABULARY,
        decoder_start_token_id=0,
    ),
    "bart": _config("BartConfig", **_ENCODER_DECODER),
    "pegasus": _config("PegasusConfig", **_ENCODER_DECODER),
    "mbart": _config("MBartConfig", **_ENCODER_DECODER),
    "whisper": _config(
        "WhisperConfig",
        **_ENCODER_DECODER,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=64,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    ),
}
AUTO_CLASSES = {
    "t5": tf.AutoModelForSeq2SeqLM,
    "bart": tf.AutoModelForSeq2SeqLM,
    "pegasus": tf.AutoModelForSeq2SeqLM,
    "mbart": tf.AutoModelForSeq2SeqLM,
    "whisper": tf.AutoModelForSpeechSeq2Seq,
    "llava": tf.AutoModelForImageTextToText,
}


@dataclasses.dataclass
class GeneratingModel:
    """A model with the inputs of its `generate`, and what the truth is.

    Attributes:
        model: In evaluation mode, without an end token: calls have the length asked for.
        inputs: A prompt of `PROMPT` tokens, or features, for `BATCH` sequences.
        start: Tokens that the decoder begins with.
        encoders: Forwards of encoders before the first of the model.
        returns_cache: Whether its `generate` returns the cache itself, not what it made of it.
    """

    model: Any
    inputs: dict[str, torch.Tensor]
    start: int
    encoders: int
    returns_cache: bool


def generating_model(name: str) -> GeneratingModel:
    """Return a small model of an architecture with random weights, the same for every call."""
    torch.manual_seed(7)
    config = CONFIGS[name]()
    model = AUTO_CLASSES.get(name, tf.AutoModelForCausalLM).from_config(config).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    inputs = {"input_ids": torch.randint(5, 80, (BATCH, PROMPT))}
    if name == "whisper":
        inputs = {"input_features": torch.randn(BATCH, 8, 32)}
    if name == "llava":
        inputs["input_ids"][:, 1:5] = 90
        inputs["pixel_values"] = torch.randn(BATCH, 3, 16, 16)
    seq2seq = bool(config.is_encoder_decoder)
    return GeneratingModel(
        model,
        inputs,
        start=1 if seq2seq else PROMPT,
        encoders=int(seq2seq or name == "llava"),
        returns_cache=name != "whisper",
    )
