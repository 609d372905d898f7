"""Findings about layers, on recordings made by hand."""

import pytest
from tests.support.findings import Steps, finding
from tests.support.kineto_events import mark, module, op

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)"
MEAN = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps<float>>>(int)"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
WRITTEN_NORM = ("pow", "mean", "add", "rsqrt", "mul", "mul")


def layer(kind, operators, gemm=60):
    """A layer of such a class that launches these operators, and a product after it."""
    steps = Steps()
    for name in operators:
        steps.run(f"aten::{name}", [(MEAN if name == "mean" else ADD, 10)])
    end = steps.host
    steps.run("aten::mm", [(GEMM, gemm)])
    return steps.record(module("Model_0", 2, steps.host), module(f"{kind}_0", 3, end - 2.9))


def test_a_normalisation_that_is_written_out():
    record = layer("Qwen2RMSNorm", WRITTEN_NORM)
    found = finding(record, "composed-layers")
    assert found.time == pytest.approx(60e-6)
    assert "1 layer of 6 operators each" in found.evidence
    assert "torch.nn.RMSNorm" in found.remedy
    assert finding(record, "unfused-elementwise") is None  # it is the same time


def test_an_activation_that_is_written_out():
    record = layer("NewGELUActivation", ("pow", "mul", "add", "tanh", "add", "mul"))
    assert "gelu(x, approximate='tanh')" in finding(record, "composed-layers").remedy


@pytest.mark.parametrize(
    ("kind", "operators", "gemm"),
    [
        ("Qwen2RMSNorm", ("_fused_rms_norm",), 20),
        ("LlamaMLP", WRITTEN_NORM, 60),  # whose operators are its own
        ("GELUActivation", ("gelu",), 20),
        ("Qwen2RMSNorm", ("mean", "rsqrt"), 20),  # which is little of one
        ("Qwen2RMSNorm", ("add",) * 6, 20),  # which is something else
        ("Qwen2RMSNorm", WRITTEN_NORM, 5000),  # of which nobody sees anything
    ],
)
def test_layers_that_are_not_written_out_or_take_no_time(kind, operators, gemm):
    assert finding(layer(kind, operators, gemm), "composed-layers") is None


def dropped(*parts):
    steps = Steps().run("aten::mm", [(GEMM, 80)])
    steps.run("aten::native_dropout", [("fused_dropout_kernel_vec<float>", 20)],
              inside=["aten::dropout"])  # fmt: skip
    return steps.record(*parts)


def test_dropout_in_a_run_without_a_backward_pass():
    found = finding(dropped(), "training-mode")
    assert found.time == pytest.approx(20e-6)
    assert "model.eval()" in found.remedy


def test_batch_statistics_in_a_run_without_a_backward_pass():
    kernel = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128>(cudnnTensorStruct)"
    steps = Steps().run("aten::cudnn_batch_norm", [(kernel, 20)]).run("aten::mm", [(GEMM, 80)])
    assert "batch statistics" in finding(steps.record(), "training-mode").title


def test_what_trains_is_in_training_mode():
    backward = op("autograd::engine::evaluate_function: MmBackward0", 60, 5)
    assert finding(dropped(backward), "training-mode") is None


def test_an_operator_of_its_own_that_draws_numbers_is_no_dropout():
    steps = Steps().run("aten::bernoulli_", [("distribution_elementwise_kernel", 20)])
    assert finding(steps.run("aten::mm", [(GEMM, 80)]).record(), "training-mode") is None


def looked_up(head, gradient="aten::embedding_dense_backward"):
    """A table of 1,000 entries that is looked up, and a product with a matrix of such a shape."""
    steps = Steps().run("aten::embedding", [("indexSelectLargeIndex", 5)], [[1000, 64], [32]])
    steps.run("aten::mm", [(GEMM, 75)], [[32, 64], head])
    return finding(steps.run(gradient, [("kernel", 20)]).record(), "dense-embedding-gradient")


def test_gradients_with_a_row_for_each_entry_of_a_table():
    assert looked_up([64, 8]).time == pytest.approx(20e-6)
    assert looked_up([64, 8], "aten::_sparse_coo_tensor_with_dims_and_tensors") is None


def test_a_table_that_a_product_reads_too_has_a_dense_gradient_in_any_case():
    assert looked_up([64, 1000]) is None


def test_gradients_that_are_filled_with_zeros():
    steps = Steps()
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
    for _ in range(4):
        steps.run("aten::zero_", [(fill, 10)])
    end = steps.host
    steps.run("aten::mm", [(GEMM, 80)])
    record = steps.record(mark("Optimizer.zero_grad#SGD.zero_grad", 3, end - 2.9))
    assert finding(record, "zeroed-gradients").time == pytest.approx(40e-6)
    assert finding(record, "fills") is None  # it is the same time
    elsewhere = steps.record(mark("Optimizer.step#SGD.step", 3, end - 2.9))
    assert finding(elsewhere, "zeroed-gradients") is None
