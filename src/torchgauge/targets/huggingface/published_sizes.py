"""Well-known models by name: the published values that set their size, as `hf:` targets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def _decoder(architecture: str, *sizes: int, overrides: str = "") -> str:
    """Return a decoder of llama's keys: width, feed-forward, layers, heads, key heads, tokens."""
    keys = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    )
    values = "&".join(f"{key}={value}" for key, value in zip(keys, sizes, strict=True))
    return f"{architecture}?{values}{overrides}"


_LARGE_ENCODER = (
    "hidden_size=1024&intermediate_size=4096&num_hidden_layers=24&num_attention_heads=16"
)
_TIED = "&tie_word_embeddings=true"
_WHISPER_LARGE = (
    "whisper?d_model=1280&encoder_layers=32&encoder_attention_heads=20&encoder_ffn_dim=5120"
    "&decoder_attention_heads=20&decoder_ffn_dim=5120&num_mel_bins=128&vocab_size=51866"
)
_ROBERTA_LARGE = (
    f"roberta?{_LARGE_ENCODER}&vocab_size=50265&max_position_embeddings=514&type_vocab_size=1"
)

# From the config.json that was published with the weights. A value that is transformers' default
# stands where the name asks for it; what changes no shape, such as the rotary base, does not.
PUBLISHED: Mapping[str, str] = MappingProxyType(
    {
        "bert-base": "bert",
        "bert-large": f"bert?{_LARGE_ENCODER}",
        "gpt2-large": "gpt2?n_embd=1280&n_layer=36&n_head=20",
        "gpt2-medium": "gpt2?n_embd=1024&n_layer=24&n_head=16",
        "gpt2-xl": "gpt2?n_embd=1600&n_layer=48&n_head=25",
        "llama-2-7b": _decoder("llama", 4096, 11008, 32, 32, 32, 32000),
        "llama-2-13b": _decoder("llama", 5120, 13824, 40, 40, 40, 32000),
        "llama-2-70b": _decoder("llama", 8192, 28672, 80, 64, 8, 32000),
        "llama-3-8b": _decoder("llama", 4096, 14336, 32, 32, 8, 128256),
        "llama-3-70b": _decoder("llama", 8192, 28672, 80, 64, 8, 128256),
        "llama-3.1-8b": _decoder("llama", 4096, 14336, 32, 32, 8, 128256),
        "llama-3.1-70b": _decoder("llama", 8192, 28672, 80, 64, 8, 128256),
        "llama-3.1-405b": _decoder("llama", 16384, 53248, 126, 128, 8, 128256),
        "llama-3.2-1b": _decoder("llama", 2048, 8192, 16, 32, 8, 128256, overrides=_TIED),
        "llama-3.2-3b": _decoder(
            "llama", 3072, 8192, 28, 24, 8, 128256, overrides=f"&head_dim=128{_TIED}"
        ),
        "mistral-7b": _decoder("mistral", 4096, 14336, 32, 32, 8, 32000),
        "mistral-7b-v0.3": _decoder(
            "mistral", 4096, 14336, 32, 32, 8, 32768, overrides="&sliding_window=none"
        ),
        "mixtral-8x7b": _decoder("mixtral", 4096, 14336, 32, 32, 8, 32000),
        "qwen2.5-0.5b": _decoder("qwen2", 896, 4864, 24, 14, 2, 151936, overrides=_TIED),
        "qwen2.5-1.5b": _decoder("qwen2", 1536, 8960, 28, 12, 2, 151936, overrides=_TIED),
        "qwen2.5-7b": _decoder("qwen2", 3584, 18944, 28, 28, 4, 152064),
        "qwen2.5-72b": _decoder("qwen2", 8192, 29568, 80, 64, 8, 152064),
        "roberta-large": _ROBERTA_LARGE,
        "t5-small": "t5",
        "t5-base": "t5?d_model=768&d_ff=3072&num_layers=12&num_heads=12",
        "t5-large": "t5?d_model=1024&d_ff=4096&num_layers=24&num_heads=16",
        "t5-3b": "t5?d_model=1024&d_kv=128&d_ff=16384&num_layers=24&num_heads=32",
        "t5-11b": "t5?d_model=1024&d_kv=128&d_ff=65536&num_layers=24&num_heads=128",
        "vit-base": "vit?num_labels=1000",
        "vit-large": f"vit?{_LARGE_ENCODER}&num_labels=1000",
        "whisper-large-v3": f"{_WHISPER_LARGE}&decoder_layers=32",
        "whisper-large-v3-turbo": f"{_WHISPER_LARGE}&decoder_layers=4",
    }
)


def with_published_values(name: str) -> str:
    """Return `llama-3-8b?key=value` as `llama?…&key=value`, any other name as it is."""
    model, _, query = name.partition("?")
    published = PUBLISHED.get(model.lower())
    if published is None:
        return name
    architecture, _, values = published.partition("?")
    return f"{architecture}?{'&'.join(filter(None, (values, query)))}"
