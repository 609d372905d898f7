"""Bytes of caches by hand: held, used, and by the model's sizes."""

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, QuantizedCache, StaticCache

from torchgauge.measure.generation.cache_layout import cache_layout
from torchgauge.measure.generation.call_watch import size_of

LAYERS, HEADS, SIZE = 2, 2, 8
CONFIG = LlamaConfig(
    num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=HEADS, hidden_size=32
)
POSITION = 2 * LAYERS * HEADS * SIZE * 4  # bytes of one position of a sequence


def filled(cache, positions, sequences=3, dtype=torch.float32):
    for layer in range(LAYERS):
        keys = torch.zeros(sequences, HEADS, positions, SIZE, dtype=dtype)
        cache.update(keys, keys.clone(), layer)
    return cache


def cache_size(cache, config=None, positions=None):
    layout = cache_layout(cache)
    return None if layout is None else size_of(layout, config, positions)


def figures(size):
    return size.held, size.used, size.formula, size.reason


def test_a_dynamic_cache_is_what_the_formula_says():
    size = cache_size(filled(DynamicCache(), 5), CONFIG)
    assert figures(size) == (3 * 5 * POSITION,) * 3 + ("",)
    assert (size.positions, size.sequences, size.kind) == (5, 3, "DynamicCache")
    assert size.elements == {"float32": 3 * 5 * POSITION}


def test_half_precision_takes_half():
    size = cache_size(filled(DynamicCache(), 5, dtype=torch.bfloat16), CONFIG)
    assert figures(size) == (3 * 5 * POSITION // 2,) * 3 + ("",)
    assert size.elements == {"bfloat16": size.held}


def test_a_static_cache_is_allocated_ahead():
    cache = filled(StaticCache(config=CONFIG, max_cache_len=20), 5)
    size = cache_size(cache, CONFIG, positions=5)
    used = 3 * 5 * POSITION
    reason = "20 positions are allocated, 5 hold tokens"
    assert figures(size) == (3 * 20 * POSITION, used, used, reason)


def test_positions_that_are_not_known_leave_the_use_unknown():
    cache = filled(StaticCache(config=CONFIG, max_cache_len=20), 5)
    size = cache_size(cache, CONFIG)
    assert (size.held, size.used, size.formula) == (3 * 20 * POSITION, None, None)
    assert "not known" in size.reason


def test_a_window_keeps_its_last_positions():
    config = LlamaConfig(**{**CONFIG.to_dict(), "sliding_window": 4})
    config.layer_types = ["sliding_attention", "full_attention"]
    size = cache_size(filled(DynamicCache(config=config), 10), config)
    layer = 3 * POSITION // LAYERS
    assert size.used == layer * (3 + 10)
    assert size.formula == layer * (4 + 10)
    assert size.held == layer * (10 + 10)  # a view of the keys of the whole prompt
    assert "parts of larger ones" in size.reason
    assert "a window of 4" in size.reason


def test_cropped_positions_are_held():
    cache = filled(DynamicCache(), 5)
    cache.crop(-2)
    size = cache_size(cache, CONFIG)
    assert figures(size)[:3] == (3 * 5 * POSITION, 3 * 3 * POSITION, 3 * 3 * POSITION)
    assert size.reason == "its tensors are parts of larger ones, which are held as a whole"


def test_memory_that_tensors_share_counts_once():
    keys = torch.zeros(1, HEADS, 4, SIZE)
    layer = keys, keys.view_as(keys)
    size = cache_size((layer, layer), CONFIG)
    assert size.held == keys.nbytes
    assert size.used == 4 * keys.nbytes


def test_a_formula_of_another_model_is_none():
    config = LlamaConfig(**{**CONFIG.to_dict(), "num_key_value_heads": 4})
    size = cache_size(filled(DynamicCache(), 5), config)
    assert (size.used, size.formula) == (3 * 5 * POSITION, None)
    assert size.reason == "no formula for llama models"


def test_tensors_of_an_unknown_layout_are_held():
    class Own:
        def __init__(self):
            self.buffers = {"keys": torch.zeros(2, 64, 8), "again": self}

    size = cache_size(Own(), CONFIG)
    assert figures(size)[:3] == (2 * 64 * 8 * 4, None, None)
    assert "the layout of 4,096 bytes is not known" in size.reason


def test_a_quantized_cache_has_no_formula():
    cache = filled(QuantizedCache("fp8", CONFIG), 16)
    size = cache_size(cache, CONFIG)
    assert size.formula is None
    assert "no formula for quantized caches" in size.reason
    assert size.held < 3 * 16 * POSITION
    assert size.sequences is None  # of a packed tensor rows are not sequences


@pytest.mark.parametrize("cache", [None, (), DynamicCache()])
def test_nothing_cached_is_no_size(cache):
    assert cache_size(cache, CONFIG) is None
