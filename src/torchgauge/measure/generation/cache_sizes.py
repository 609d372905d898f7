"""The bytes of a cache: what it holds, what tokens use, and what the model's sizes say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchgauge.measure.generation.cache_layout import CacheLayout, PositionTensor, cache_layout
from torchgauge.records.generation.cache_size import CacheSize


def cache_size(cache: Any, config: Any = None, positions: int | None = None) -> CacheSize | None:
    """Return what a cache takes; None where there is no tensor in it.

    `config` is the model's, for the formula. `positions` that it has seen are needed for caches
    that do not say how many (static ones, whose count is a tensor on the device).
    """
    layout = cache_layout(cache)
    return None if layout is None else size_of(layout, config, positions)


def size_of(layout: CacheLayout, config: Any, positions: int | None = None) -> CacheSize:
    """Return what a cache of that layout takes, as `cache_size`."""
    positions = layout.length if positions is None else positions
    used = _used(layout, positions)
    formula, no_formula = _formula(layout, config, positions)
    reasons = [*_reasons(layout, positions, used, formula), *([no_formula] if no_formula else [])]
    return CacheSize(
        kind=layout.kind,
        held=layout.held,
        used=used,
        formula=formula,
        reason="; ".join(reasons),
        positions=positions,
        sequences=layout.sequences,
        elements=layout.elements,
    )


def _used(layout: CacheLayout, positions: int | None) -> int | None:
    if layout.unknown:
        return None
    used = layout.states + layout.quantized
    for tensor in layout.keys:
        length = positions if tensor.length is None else tensor.length
        if length is None:
            return None
        used += tensor.bytes_of(min(length, tensor.capacity))
    return used


def _formula(layout: CacheLayout, config: Any, positions: int | None) -> tuple[int | None, str]:
    """Return the bytes by the configuration's sizes, or the reason why there is no formula."""
    if layout.unknown:
        return None, f"no formula for {layout.kind}"
    if layout.quantized:
        return None, "no formula for quantized caches"
    if layout.states:
        return None, f"no formula for {'hybrid' if layout.keys else 'state-space'} models"
    if config is None or positions is None:
        return None, "no formula without the model's configuration and positions"
    widths = next((widths for widths in _widths(config) if _described(widths, layout)), None)
    if widths is None:
        return None, f"no formula for {getattr(config, 'model_type', layout.kind)} models"
    if any(_is_of_others(tensor, positions) for tensor in layout.keys):
        return None, "no formula for layers that hold positions of their own, as of images"
    formula = 0
    for tensor in layout.keys:
        length = (
            tensor.capacity if tensor.by_encoder else min(positions, tensor.window or positions)
        )
        formula += tensor.sequences * length * widths[tensor.role] * tensor.element_bytes
    return formula, ""


def _widths(config: Any) -> Iterator[dict[str, int]]:
    """Yield the elements of a position's keys and values, and the layers, by the configuration.

    With latent attention a model may keep the latents, or the keys and values made of these.
    """
    text_config = getattr(config, "get_text_config", None)
    sizes = config if text_config is None else text_config(decoder=True)
    layers = _first(sizes, "num_hidden_layers")
    queries = _first(sizes, "num_attention_heads")
    hidden = _first(sizes, "hidden_size", "d_model")
    if layers is None or queries is None or hidden is None:
        return
    latent, rotated = _first(sizes, "kv_lora_rank"), _first(sizes, "qk_rope_head_dim")
    if latent is not None and rotated is not None:
        size_of_keys = (_first(sizes, "qk_nope_head_dim") or 0) + rotated
        size_of_values = _first(sizes, "v_head_dim") or 0
        yield {"layers": layers, "keys": latent, "values": rotated}
        yield {"layers": layers, "keys": queries * size_of_keys, "values": queries * size_of_values}
        return
    heads = _first(sizes, "num_key_value_heads", "num_kv_heads") or queries
    if getattr(sizes, "multi_query", False) and not getattr(sizes, "new_decoder_architecture", 0):
        heads = 1
    size = _first(sizes, "head_dim", "d_kv") or hidden // queries
    yield {"layers": layers, "keys": heads * size, "values": heads * size}


def _is_of_others(tensor: PositionTensor, positions: int) -> bool:
    """Return whether a tensor's positions are not those of the tokens, without a window on them."""
    if tensor.by_encoder or tensor.window is not None or tensor.length is None:
        return False
    return tensor.length != positions


def _first(sizes: Any, *names: str) -> int | None:
    values = (getattr(sizes, name, None) for name in names)
    return next((value for value in values if type(value) is int and value > 0), None)


def _described(widths: dict[str, int], layout: CacheLayout) -> bool:
    """Return whether the cache has the sizes that the configuration says; else it is another's."""
    has_widths = all(tensor.width == widths[tensor.role] for tensor in layout.keys)
    return has_widths and widths["layers"] == layout.layers


def _reasons(
    layout: CacheLayout, positions: int | None, used: int | None, formula: int | None
) -> Iterator[str]:
    """Say why what is held, what is used and the formula differ, where they do."""
    own = [tensor for tensor in layout.keys if not tensor.by_encoder]
    if layout.unknown:
        yield f"the layout of {layout.unknown:,} bytes is not known"
    elif used is None:
        yield "how many positions hold tokens is not known"
    elif layout.held > used:
        yield from _allocated(layout, own, positions)
    windows = {tensor.window for tensor in own if tensor.window}
    if formula is not None and used is not None and formula != used and windows:
        yield f"layers with a window of {min(windows)} keep one position less than it"
    if formula is None and windows and positions and positions > min(windows):
        yield f"a window of {min(windows)} positions"


def _allocated(
    layout: CacheLayout, own: list[PositionTensor], positions: int | None
) -> Iterator[str]:
    capacity = max((tensor.capacity for tensor in own), default=0)
    if positions is not None and capacity > positions:
        yield f"{capacity:,} positions are allocated, {positions:,} hold tokens"
    visible = sum(tensor.bytes_of(tensor.capacity) for tensor in layout.keys)
    if layout.held > visible + layout.states + layout.quantized:
        yield "its tensors are parts of larger ones, which are held as a whole"
