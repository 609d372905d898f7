"""Categories of a tree: by hand, and of public traces."""

import pytest
from tests.support.paths import public_trace
from tests.support.recorded_trees import recorded_tree

from torchgauge.analyze.work.category_times import OUTSIDE, category_times
from torchgauge.device.roofs import peaks
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.trace.breakdown import Collective, Kernel
from torchgauge.report.tables.category_table import categories, figures

MODEL = TreeRow(name="Net", kind="model", parent=-1, calls=1, host=100)
PRODUCT = "ampere_bf16_s16816gemm_bf16_128x64"


def operator(name, parent, **figures):
    return TreeRow(name=name, kind="operator", parent=parent, calls=2, phase="forward", **figures)


def kernel(name, parent, device, phase="forward", **facts):
    kernel_record = Kernel(durations=(device,), **facts)
    return TreeRow(
        name=name, kind="kernel", parent=parent, calls=2, phase=phase, device=device,
        kernel=kernel_record,
    )  # fmt: skip


def by_name(*rows, roofs=None):
    return {row.name: row for row in category_times(Tree(rows=(MODEL, *rows)), roofs)}


def test_kernels_belong_to_the_operator_that_is_counted_around_them():
    found = by_name(
        operator("aten::conv2d", 0),
        operator("aten::cudnn_convolution", 1, flops=6_000, bytes=900),
        kernel("nchwToNhwcKernel<float>", 2, 1_000),
        kernel("cutlass_80_tensorop_s1688gemm_64x64", 2, 2_000),
        kernel("ampere_sgemm_32x32_nn", 0, 500),  # of no operator: by its own name
    )
    convolution = found["convolution"]
    assert convolution.time == pytest.approx(3e-6)
    assert convolution.share == pytest.approx(3000 / 3500)
    assert convolution.calls == 4
    assert convolution.flops_per_second == pytest.approx(6_000 / 3e-6)
    assert convolution.bytes_per_second == pytest.approx(900 / 3e-6)
    assert (convolution.precision, convolution.tensor_cores) == ("tf32", pytest.approx(2 / 3))
    assert found["matrix product"].flops_per_second is None  # its work is not known
    assert found["matrix product"].tensor_cores == 0


def test_host_time_inside_the_call_of_a_compiled_graph_is_the_graphs():
    found = by_name(
        operator("## Call CompiledFxGraph flstm ##", 0, host=60),
        operator("aten::mm", 1, host=30, flops=6),
    )
    assert {name: round(row.time * 1e9) for name, row in found.items()} == {
        "compiled graph": 60, "matrix product": 30, OUTSIDE: 100
    }  # fmt: skip


def test_rates_are_shares_of_the_roofs_of_the_type_that_kernels_use():
    roofs = peaks.find("a100")
    product = by_name(
        operator("aten::mm", 0, flops=312_000_000, bytes=2_039),
        kernel(PRODUCT, 1, 4_000),
        roofs=roofs,
    )["matrix product"]
    # 312 TFLOP/s in bfloat16 take 1 µs of 4.
    assert product.compute_share == pytest.approx(312e6 / roofs.peak("bfloat16") / 4e-6)
    assert product.compute_share == pytest.approx(0.25, rel=0.01)
    assert product.memory_share == pytest.approx(2_039 / 4e-6 / roofs.memory_bandwidth)


def test_operators_of_unknown_work_count_in_no_rate():
    product = by_name(
        operator("aten::mm", 0, flops=100, bytes=50),
        kernel(PRODUCT, 1, 10),
        operator("aten::bmm", 0, unknown=1, calls_without_bytes=1),
        kernel(PRODUCT, 3, 90),
        operator("aten::addmm", 0, flops=70, calls_without_bytes=1),
        kernel(PRODUCT, 5, 30),
    )["matrix product"]
    assert product.time == pytest.approx(130e-9)
    assert product.flops_per_second == pytest.approx(170 / 40e-9)
    assert product.bytes_per_second == pytest.approx(50 / 10e-9)


def test_where_kernels_do_not_say_their_type_the_inputs_of_their_operator_do():
    found = by_name(
        operator("aten::add", 0, dtype="bfloat16"),
        kernel("vectorized_elementwise_kernel<4>", 1, 300),
        operator("aten::mm", 0, dtype="bfloat16"),
        kernel("some_product", 3, 400),
        operator("aten::bmm", 0, dtype="float32"),  # on a GPU that may be TF32
        kernel("some_product", 5, 100),
        operator("aten::layer_norm", 0, dtype="bfloat16"),
        operator("aten::native_layer_norm", 7),
        kernel("layer_norm_kernel<float>", 8, 50),  # its name says more than the inputs
    )
    assert found["elementwise"].precisions == {"bf16": pytest.approx(300e-9)}
    assert found["matrix product"].precisions == {"bf16": pytest.approx(400e-9)}
    assert found["normalisation"].precisions == {"fp32": pytest.approx(50e-9)}
    assert found["matrix product"].tensor_cores is None


def test_on_a_host_the_inputs_say_the_type_and_the_share_of_its_peak():
    roofs = peaks.find("a100")
    product = by_name(
        operator("aten::mm", 0, dtype="float64", host=1_000, flops=9_700), roofs=roofs
    )["matrix product"]
    assert product.precision == "fp64"
    assert product.tensor_cores is None
    assert product.compute_share == pytest.approx(9_700 / roofs.peak("float64") / 1e-6)


def test_optimizers_collectives_and_copies_are_theirs_whoever_launched_them():
    step = TreeRow(name="aten::mul_", kind="operator", parent=0, calls=2, phase="optimizer")
    copy = "Memcpy HtoD (Pinned -> Device)"
    found = by_name(
        step,
        kernel("vectorized_elementwise_kernel<4, MulFunctor<float>>", 1, 1, phase="optimizer"),
        operator("aten::add", 0),
        kernel("my_reduction", 3, 2, collective=Collective(name="allreduce")),
        kernel(copy, 0, 4, work="copy"),
        kernel("Memset (Device)", 0, 8, work="memory set"),
    )
    times = {name: round(row.time * 1e9) for name, row in found.items()}
    assert times == {"optimizer": 1, "communication": 2, "copy": 4, "fill": 8}


def test_without_a_device_operators_have_their_own_time():
    found = by_name(
        operator("aten::linear", 0, host=5),
        operator("aten::addmm", 1, host=40, flops=800, bytes=10),
        operator("aten::copy_", 2, host=10),
        operator("aten::t", 1, host=7),
    )
    times = {name: round(row.time * 1e9) for name, row in found.items()}
    # What a counted operator calls is its own way of doing it; a view does nothing.
    assert times == {"matrix product": 55, OUTSIDE: 107}
    assert found["matrix product"].flops_per_second == pytest.approx(800 / 50e-9)


def test_on_the_host_an_operator_is_one_call_with_all_that_it_runs():
    found = by_name(
        operator("aten::conv2d", 0, host=10),
        operator("aten::convolution", 1, host=10),
        operator("aten::mkldnn_convolution", 2, host=70),
        operator("aten::empty", 3, host=5),
    )
    assert found["convolution"].calls == 2
    assert found[OUTSIDE].calls == 0


def test_a_tree_without_time_has_no_categories():
    assert category_times(Tree(rows=(TreeRow(name="N", kind="model", parent=-1, calls=1),))) == []


@pytest.mark.parametrize(
    "name", ["h100_qwen_0.5b", "mi300_resnet_ddp_checkpoint_rank0of8", "diff_after_v100"]
)
def test_the_categories_of_a_public_trace_are_all_of_its_device_time(name):
    events = read_events(public_trace(name))
    tree = recorded_tree(events)
    roofs = peaks.find(events.metadata.devices[0]["name"])
    rows = category_times(tree, roofs)
    assert sum(row.time for row in rows) == pytest.approx(tree.root.device_time)
    for row in rows:
        assert row.compute_share is None or 0 <= row.compute_share < 1
        assert row.memory_share is None or 0 < row.memory_share < 1
        assert row.tensor_cores is None or 0 <= row.tensor_cores <= 1


def test_a_rate_of_the_smaller_part_of_the_time_is_no_share_of_a_peak():
    roofs = peaks.find("a100")

    def product(counted):
        return by_name(
            operator("aten::mm", 0, flops=10_000_000, bytes=2_039),
            kernel(PRODUCT, 1, counted),
            kernel(PRODUCT, 0, 1_000),  # of no operator: its FLOPs are not known
            roofs=roofs,
        )["matrix product"]

    most, little = product(3_000), product(500)
    assert most.flops_share == most.bytes_share == pytest.approx(0.75)
    assert (most.compute_share, most.memory_share) != (None, None)
    assert little.flops_share == pytest.approx(1 / 3)
    assert little.flops_per_second == pytest.approx(2e13)
    assert (little.compute_share, little.memory_share) == (None, None)


def test_a_rate_above_the_devices_peak_is_left_out():
    product = by_name(
        operator("aten::mm", 0, flops=313_000_000, bytes=2_100_000),
        kernel(PRODUCT, 1, 1_000),  # 313 TFLOP/s and 2.1 TB/s of an A100
        roofs=peaks.find("a100"),
    )["matrix product"]
    assert (product.flops_per_second, product.compute_share) == (None, None)
    assert (product.bytes_per_second, product.memory_share) == (None, None)


def test_the_time_that_a_rate_is_of_is_exported_and_said():
    rows = (
        operator("aten::mm", 0, flops=10_000_000),
        kernel(PRODUCT, 1, 500),
        kernel(PRODUCT, 0, 1_000),
        operator("aten::add", 0, flops=8_000),
        kernel("at::native::vectorized_elementwise_kernel", 4, 3_000),
        kernel("at::native::vectorized_elementwise_kernel", 0, 1_000),
    )
    tree = Tree(rows=(MODEL, *rows))
    columns = figures(tree, None)
    assert dict(zip(columns["category"], columns["flops_time"], strict=True)) == {
        "elementwise": pytest.approx(3e-6), "matrix product": pytest.approx(5e-7),
    }  # fmt: skip
    (table,) = categories(tree)
    rates = {row.name: row.cells.get("FLOP/s") for row in table.rows}
    assert rates == {"elementwise": "2.67 G of 75 %", "matrix product": None}
    assert "matrix product: 20.0 T FLOP/s of 33 % of the time." in table.notes
