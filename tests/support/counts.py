"""The count of a language model, made by hand."""

from torchgauge.analyze.memory.training_memory import Passes, Trainable, training_memory
from torchgauge.analyze.work.lower_bound import estimate_on_device
from torchgauge.device.roofs import peaks
from torchgauge.records.target import InputDescription, TargetDescription
from torchgauge.records.work.cost import Cost, CostNode, CostRow
from torchgauge.records.work.size import Count, DtypeSize, Size

LONG = "an_embedding_projection_of_a_quite_unusual_length_that_no_column_holds"
SIZE = Size(
    parameters=7_000_000_000,
    trainable=7_000_000_000,
    buffers=128,
    parameter_bytes=14_000_000_000,
    buffer_bytes=512,
    by_dtype={"bfloat16": DtypeSize(elements=7_000_000_000, bytes=14_000_000_000)},
)
PASSES = Passes(
    peak=14_900_000_000,
    moment="backward",
    parts={"gradients": 14_000_000_000, "activations": 0, "workspace": 900_000_000},
    activations=900_000_000,
    after_backward=14_000_000_000,
)


def trained(parameters, passes=PASSES):
    return training_memory(SIZE, parameters, inputs=1024, passes=passes, optimizer="adamw")


# Of 70 matrices, so that the optimizer steps each with little beside it.
TRAINING = trained([Trainable((1_000, 100_000), "bfloat16", 2)] * 70)


def node(name, parent, kind, parameters=0):
    return CostNode(name=name, path=name, kind=kind, parent=parent, calls=1, parameters=parameters)


def row(at, operator, phase="forward", **sums):
    sums.setdefault("calls", 1)
    sums.setdefault("causal_matmul_flops", sums.get("matmul_flops", 0))
    return CostRow(node=at, operator=operator, phase=phase, dtype="bfloat16", **sums)


def cost(*more, backward=False):
    """An embedding and four blocks of attention and feed-forward, as language models have them."""
    nodes = [node("Model", -1, "Model", 7 * 10**9), node(LONG, 0, "Embedding", 3 * 10**9)]
    rows = [row(1, "aten::embedding", bytes=123)]
    for index in range(4):
        block = len(nodes)
        nodes.append(node(f"layers.{index}", 0, "DecoderLayerOfALongName", 10**9))
        nodes.append(node("attention", block, "Attention", 4 * 10**8))
        nodes.append(node("feed_forward", block, "FeedForward", 6 * 10**8))
        rows.append(row(block + 1, "aten::mm", matmul_flops=10**12, bytes=2 * 10**9))
        rows.append(row(block + 1, "aten::_softmax", vector_flops=1234, bytes=999))
        rows.append(row(block + 2, "aten::mm", matmul_flops=3 * 10**12, bytes=4 * 10**9))
    return Cost(
        nodes=tuple(nodes), rows=(*rows, *more), backward=backward, counted_on="meta",
        retained_for_backward=900_000_000 if backward else None,
    )  # fmt: skip


def counted(found=None, *, training=None, on=()):
    found = found or cost(backward=training is not None)
    there = (
        estimate_on_device(found, SIZE, peaks.find(name), training, inputs=1024) for name in on
    )
    return Count(
        target=TargetDescription(
            spec="hf:model", kind="huggingface", name="Model", device="meta", precision="bf16",
            precision_method="cast", training=training is not None, weights="random",
            inputs=(
                InputDescription(name="input_ids", shape=(1, 128), dtype="int64"),
                InputDescription(name="1", shape=(2, 3), dtype="float32"),
            ),
        ),
        size=SIZE,
        cost=found,
        totals=found.totals,
        training=training,
        other_devices=tuple(there),
    )  # fmt: skip


EVERYTHING = counted(training=TRAINING, on=("h100", "a100", "l4", "rtx 4090", "mi300x"))
