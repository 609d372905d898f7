"""Model FLOP/s utilisation of Llama, beside the arithmetic by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpu_rows.line import Line, judged

if TYPE_CHECKING:
    from gpu_rows.machine import Machine

NEAR = 0.02


class Shape(NamedTuple):
    """The sizes that the work of a Llama's forward pass follows from."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    vocabulary: int


def forward_flops(shape: Shape, batch: int, tokens: int, *, head: bool) -> int:
    """Return the FLOPs of matrix products in a forward pass, a multiply-add counted as two.

    Projections: 2 · weights · tokens. Attention: two products of tokens × tokens × hidden each,
    without the half that a causal mask makes unnecessary. `head`: with the vocabulary's product.
    """
    size = shape.hidden // shape.heads
    attention = shape.hidden * (2 * shape.hidden + 2 * shape.key_value_heads * size)
    weights = shape.layers * (attention + 3 * shape.hidden * shape.intermediate)
    if head:
        weights += shape.hidden * shape.vocabulary
    scores = 2 * 2 * shape.layers * batch * tokens**2 * shape.hidden
    return 2 * weights * batch * tokens + scores


def angle_flops(shape: Shape, batch: int, tokens: int) -> int:
    """Return the FLOPs of the angles of positions, which some releases of transformers multiply."""
    return 2 * batch * tokens * (shape.hidden // shape.heads // 2)


def utilisation(flops: float, seconds: float, peak: float) -> float:
    """Return the share of a peak (FLOP/s) that so many FLOPs in so many seconds reach."""
    return flops / seconds / peak


def lines(machine: Machine) -> Iterator[Line]:
    """Yield the counted work and the utilisation, each beside the hand's."""
    import torchgauge as tg
    from gpu_rows.latency import host_loop
    from gpu_rows.machine import call_of
    from torchgauge.device.roofs.roofs import datasheet, quick

    placement = machine.model("Llama 1B")
    config = placement.model.config
    shape = Shape(
        config.num_hidden_layers,
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.vocab_size,
    )
    (_, ids), *_ = placement.inputs.tensors()
    head = placement.model.get_output_embeddings() is not None
    by_hand = forward_flops(shape, *ids.shape, head=head)
    cost = tg.count_cost(placement.model, placement.inputs)
    yield counted(cost.matmul_flops, by_hand, angle_flops(shape, *ids.shape))
    latency = tg.measure_latency(
        placement.model, placement.inputs, budget=machine.seconds(3.0), processes=1, progress=False
    )
    seconds = host_loop(call_of(placement), machine.synchronize, machine.few(30))
    peak = (datasheet(machine.device) or quick(machine.device)).peak("bfloat16")
    if not peak:
        yield Line("Llama 1B: MFU", verdict="not run", note="the device's bfloat16 peak is unknown")
        return
    yield utilised(
        utilisation(cost.matmul_flops, latency.median, peak), utilisation(by_hand, seconds, peak)
    )


def counted(ours: int, by_hand: int, angles: int) -> Line:
    """Return the line of the counted work, in which the angles may be."""
    return judged(
        "Llama 1B: FLOPs of matrix products",
        f"{ours:,}",
        f"{by_hand:,} by hand, and {angles:,} where angles are multiplied",
        goal="equal, with the angles or without",
        met=ours in (by_hand, by_hand + angles),
        ours=ours,
        by_hand=by_hand,
    )


def utilised(ours: float, by_hand: float) -> Line:
    """Return the line of the utilisation."""
    return judged(
        "Llama 1B: MFU",
        f"{ours:.1%}",
        f"{by_hand:.1%} by hand",
        goal="within 2 %",
        met=abs(ours / by_hand - 1) <= NEAR,
        ours=ours,
        by_hand=by_hand,
    )
