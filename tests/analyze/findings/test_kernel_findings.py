"""Findings about kernels, on recordings of a device made by hand."""

import pytest
from tests.support.findings import H100, Steps, finding, rank
from tests.support.kineto_events import copy, launched, op

from torchgauge.analyze.findings import fusion_rules
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.records.finding import Finding
from torchgauge.records.timeline.node import TreeRow
from torchgauge.records.timeline.tree import Tree

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)"
ARRANGED = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}>>(int)"
)
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10>(float*)"
SCORES = [8, 16, 128, 64]  # of 128 queries and 64 keys


def attention(softmax_on, name="aten::bmm", around=()):
    """A product, a softmax of this shape, a product, and a linear layer beside them."""
    steps = Steps()
    steps.run(name, [(GEMM, 30)], [[128, 128, 32], [128, 32, 64]], inside=around)
    steps.run("aten::_softmax", [(SOFTMAX, 20)], [softmax_on, [], []], inside=around)
    steps.run(name, [(GEMM, 30)], [[128, 128, 64], [128, 64, 32]], inside=around)
    return steps.run("aten::mm", [(GEMM, 20)], [[512, 512], [512, 512]])


def test_a_softmax_between_two_products_on_its_shape_is_attention():
    found = finding(attention(SCORES).record(), "eager-attention")
    assert found.time == pytest.approx(80e-6)  # the linear layer is no part of it
    assert "128 × 64 scores" in found.evidence
    assert "scaled_dot_product_attention" in found.remedy


def test_a_softmax_on_another_shape_is_no_attention():
    assert finding(attention([8, 16, 128, 1000]).record(), "eager-attention") is None


def test_a_softmax_over_a_product_that_no_product_reads_is_no_attention():
    steps = Steps().run("aten::bmm", [(GEMM, 30)], [[128, 128, 32], [128, 32, 64]])
    steps.run("aten::_softmax", [(SOFTMAX, 20)], [SCORES, [], []])
    assert finding(steps.record(), "eager-attention") is None


def test_torch_s_own_attention_in_its_plain_form_is_that_and_not_written_out():
    plain = "aten::_scaled_dot_product_attention_math"
    record = attention(SCORES, around=["aten::scaled_dot_product_attention", plain]).record()
    assert finding(record, "eager-attention") is None
    assert finding(record, "math-attention").time == pytest.approx(80e-6)


def test_forcing_a_fused_attention_says_where_it_ends_the_program():
    plain = "aten::_scaled_dot_product_attention_math"
    found = finding(attention(SCORES, around=[plain]).record(), "math-attention")
    assert "ends the program where none fits" in found.remedy
    nodes = [
        TreeRow(name="Net", kind="model", parent=-1, calls=1, host=0),
        TreeRow(name=plain, kind="operator", parent=0, calls=1, host=90_000),
        TreeRow(name="aten::dropout", kind="operator", parent=1, calls=1, host=10_000),
    ]
    dropped = next(fusion_rules.math_attention.find(Evidence(Tree(rows=tuple(nodes)), 1e-4)))
    assert dropped.remedy.startswith("dropout_p=0: ")  # no device has a kernel to force


def test_fused_attention_is_no_finding():
    flash = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64>>()"
    record = Steps().run("aten::_scaled_dot_product_flash_attention", [(flash, 90)]).record()
    assert finding(record, "eager-attention") is finding(record, "math-attention") is None


def test_casts_are_copies_to_another_type():
    steps = Steps().run("aten::mm", [(GEMM, 60)])
    steps.run("aten::copy_", [(CAST, 20)], inside=["aten::to", "aten::_to_copy"])
    found = finding(steps.record(), "casts")
    assert found.time == pytest.approx(20e-6)
    assert "1 copies" in found.evidence


@pytest.mark.parametrize(
    ("kernel", "inside"),
    [
        (ARRANGED, ["aten::to", "aten::_to_copy"]),  # to another layout
        (CAST, ["aten::contiguous", "aten::clone"]),
        (CAST, []),
    ],
)
def test_other_copies_are_no_casts(kernel, inside):
    steps = Steps().run("aten::mm", [(GEMM, 60)]).run("aten::copy_", [(kernel, 20)], inside=inside)
    assert finding(steps.record(), "casts") is None


def test_a_copy_to_another_device_is_no_cast():
    parts = [op("aten::to", 0, 9), op("aten::_to_copy", 1, 7), op("aten::copy_", 2, 5)]
    record = rank(*parts, launched(CAST, 60, 2, at=40), copy("Memcpy HtoD", 20, 30, 1))
    assert finding(record, "casts") is None


def test_copies_for_contiguous_are_a_finding_of_their_own():
    steps = Steps().run("aten::mm", [(GEMM, 60)])
    steps.run("aten::copy_", [(ARRANGED, 20)], [[4, 8]], ["aten::contiguous", "aten::clone"])
    found = finding(steps.record(), "contiguous-copies")
    assert found.time == pytest.approx(20e-6)
    assert "[[4, 8]]" in found.evidence


@pytest.mark.parametrize("around", [["aten::clone"], ["aten::matmul", "aten::reshape"]])
def test_what_the_user_copies_and_what_a_product_arranges_is_not(around):
    steps = Steps().run("aten::mm", [(GEMM, 60)])
    steps.run("aten::copy_", [(ARRANGED, 20)], inside=around)
    assert finding(steps.record(), "contiguous-copies") is None


def elementwise(adds, gemm, kernel=ADD, duration=10):
    steps = Steps().run("aten::mm", [(GEMM, gemm)])
    for _ in range(adds):
        steps.run("aten::add", [(kernel, duration)])
    return steps.record()


def test_a_chain_of_elementwise_kernels_could_be_one():
    found = finding(elementwise(6, 60), "unfused-elementwise")
    assert found.time == pytest.approx(60e-6)
    assert "aten::add" in found.evidence


@pytest.mark.parametrize(
    ("adds", "gemm", "kernel", "duration"),
    [
        (1, 10, ADD, 100),  # there is nothing to fuse it with
        (2, 200, ADD, 10),  # little
        (6, 60, "triton_poi_fused_add_relu_0", 10),  # it is fused
    ],
)
def test_elementwise_kernels_that_fusing_does_not_help(adds, gemm, kernel, duration):
    assert finding(elementwise(adds, gemm, kernel, duration), "unfused-elementwise") is None


def test_elementwise_operations_of_an_optimizer_are_another_matter():
    optimizer = op("Optimizer.step#AdamW.step", 0, 90)
    steps = Steps()
    for _ in range(6):
        steps.run("aten::add_", [(ADD, 10)])
    assert finding(steps.record(optimizer), "unfused-elementwise") is None


@pytest.mark.parametrize(
    "kernel",
    [
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(float const*)",
        "batched_transpose_32x32_half",
        "transpose_NCHW2CNHW_V2_2D_WG_off64",
    ],
)
def test_layout_conversions_in_convolutions(kernel):
    steps = Steps().run("aten::cudnn_convolution", [(kernel, 10), ("s1688fprop", 60)])
    found = finding(steps.record(), "layout-conversions")
    assert found.time == pytest.approx(10e-6)
    assert "aten::cudnn_convolution" in found.evidence


def test_a_transpose_that_the_model_asks_for_is_no_layout_conversion():
    steps = Steps().run("aten::cat", [("void CatArrayBatchedCopy<float>(float*)", 30)])
    assert finding(steps.record(), "layout-conversions") is None


def test_memory_that_the_program_fills():
    steps = Steps().run("aten::mm", [(GEMM, 50)])
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
    steps.run("aten::fill_", [(fill, 20)], inside=["aten::zeros", "aten::zero_"])
    found = finding(steps.record(), "fills")
    assert found.time == pytest.approx(20e-6)
    assert "by aten::zeros." in found.evidence
    assert finding(Steps().run("aten::mm", [(GEMM, 50)]).record(), "fills") is None


def test_a_fill_without_an_operator_is_one_and_a_memory_set_may_be_a_library_s():
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"
    parts = launched(GEMM, 100, 60, at=90), launched(fill, 160, 20, at=91)
    assert "without an operator" in finding(rank(*parts), "fills").evidence
    memory_set = launched("Memset (Device)", 160, 20, at=91, cat="gpu_memset")
    assert finding(rank(parts[0], memory_set), "fills") is None


def test_what_an_operator_fills_for_itself_is_no_finding():
    steps = Steps().run("aten::mm", [(GEMM, 50)]).run("aten::addmm", [("Memset (Device)", 20)])
    steps.run("aten::zero_", [("Memset (Device)", 20)], inside=["aten::slice_backward"])
    assert finding(steps.record(), "fills") is None


@pytest.mark.parametrize(
    ("kernel", "is_unaligned"),
    [
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nn_align1>(int)", True),
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2", True),
        ("volta_fp16_sgemm_fp16_128x64_nn", True),
        ("cutlass_80_tensorop_s1688gemm_64x64_32x4_nn_align4", False),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_64x64_nn_align16", False),
        ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", False),  # one that always has it
    ],
)
def test_products_on_unaligned_sizes(kernel, is_unaligned):
    steps = Steps().run("aten::bmm", [(kernel, 20)], [[8, 647, 96], [8, 96, 30]])
    found = finding(steps.run("aten::mm", [(GEMM, 60)]).record(), "unaligned-products")
    assert (found is not None) == is_unaligned
    if is_unaligned:
        assert "on 8×647×96 and 8×96×30" in found.evidence


@pytest.mark.parametrize(
    ("name", "major", "remedy"),
    [
        ("ampere_sgemm_128x64_tn", 8, "TF32"),
        ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", 9, "TF32"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_ffma_aligna4", 9, "TF32"),
        ("cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1", 8, "TF32"),
        ("volta_sgemm_128x64_tn", 7, "GradScaler"),  # there is no TF32
        ("ampere_sgemm_128x64_tn", 6, None),  # there are no Tensor Cores
        ("cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4", 8, None),  # it is TF32
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw", 8, None),
        ("ampere_fp16_sgemm_fp16_128x128_tn", 8, None),
        ("volta_fp16_scudnn_winograd_fp16_128x128_ldg1_ldg4_relu_tile148t_nt_v0", 7, None),
        ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_nn", 8, None),
    ],
)
def test_products_in_full_fp32_where_the_device_has_tensor_cores(name, major, remedy):
    parts = [launched(name, 100, 10, at=90), launched("relu", 110, 90, at=91)]
    found = finding(rank(*parts, devices=[H100 | {"computeMajor": major}]), "fp32-products")
    assert (found is not None) == (remedy is not None)
    if found is not None:
        assert remedy in found.remedy
        assert name[:60] in found.evidence


def test_cudnn_that_uses_tf32_where_it_wants_to_is_allowed_to():
    fp32 = "cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1"
    tf32 = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64"
    record = Steps().run("aten::conv2d", [(fp32, 30), (tf32, 30)]).record()
    assert finding(record, "fp32-products") is None


def test_a_little_fp32_is_no_finding():
    parts = [launched("ampere_sgemm_32x32", 100, 4, at=90), launched("relu", 104, 96, at=91)]
    assert finding(rank(*parts), "fp32-products") is None


@pytest.mark.parametrize(
    ("kernel", "is_double"),
    [
        ("ampere_dgemm_128x64_tn", True),
        ("cutlass_80_tensorop_d884gemm_f64_nn", True),
        (GEMM, False),
    ],
)
def test_products_in_double_precision(kernel, is_double):
    found = finding(Steps().run("aten::mm", [(kernel, 60)]).record(), "float64-products")
    assert (found is not None) == is_double


@pytest.mark.parametrize(
    ("name", "dims", "is_found"),
    [
        ("aten::mm", [[1, 4096], [4096, 4096]], True),
        ("aten::addmm", [[4096], [1, 4096], [4096, 4096]], True),
        ("aten::mm", [[8, 4096], [4096, 4096]], False),
        ("aten::bmm", [[1, 4, 64], [1, 64, 4]], False),
    ],
)
def test_products_of_one_row(name, dims, is_found):
    gemv = "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, 7>()"
    found = finding(Steps().run(name, [(gemv, 40)], dims).record(), "single-row-products")
    assert (found is not None) == is_found


def grid(blocks, duration=50, threads=128, registers=32, shared=0):
    """A kernel of so many blocks; of 128 threads an H100 here holds 16 on each of 132."""
    facts = {"grid": [blocks, 1, 1], "block": [threads, 1, 1]}
    return duration, facts | {"registers per thread": registers, "shared memory": shared}


@pytest.mark.parametrize(("blocks", "worth"), [(33, 37.5), (66, 25), (132, None), (1000, None)])
def test_a_grid_smaller_than_the_device(blocks, worth):
    record = Steps().run("my::op", [("my_kernel", *grid(blocks))]).record()
    found = finding(record, "small-grids")
    assert (None if found is None else found.worth) == (worth and pytest.approx(worth * 1e-6))


def test_a_short_kernel_takes_as_long_as_any_launch():
    steps = Steps()
    for _ in range(20):
        steps.run("my::op", [("my_kernel", *grid(4, duration=5))])
    assert finding(steps.record(), "small-grids") is None


# 128 registers leave room for 4 blocks of 128 threads on a multiprocessor: 528 at once.
@pytest.mark.parametrize(
    ("blocks", "idle"), [(528, None), (660, 0.375), (1056, None), (2200, None)]
)
def test_blocks_that_fill_the_device_once_and_a_little(blocks, idle):
    shape = grid(blocks, registers=128)
    found = finding(Steps().run("aten::mm", [(GEMM, *shape)]).record(), "partial-waves")
    assert (None if found is None else found.worth) == (idle and pytest.approx(idle * 50e-6))


@pytest.mark.parametrize(
    ("kernel", "registers", "is_low"),
    [("my_kernel", 255, True), ("my_kernel", 64, False), (GEMM, 255, False)],
)
def test_registers_that_leave_few_warps_resident(kernel, registers, is_low):
    record = Steps().run("my::op", [(kernel, *grid(5000, registers=registers))]).record()
    found = finding(record, "low-occupancy")
    assert (found is not None) == is_low
    if is_low:
        assert f"{registers} registers per thread" in found.evidence
        assert found.severity == "info"


def copied(count, size, kind="Memcpy HtoD (Pinned -> Device)"):
    """A run in which every tensor is copied by an operator of 10 µs."""
    parts = []
    for number in range(count):
        at = 20 * number
        parts += [op("aten::to", at, 10), {**copy(kind, at + 5, 2, number), "cat": "gpu_memcpy"}]
        parts[-1]["args"]["bytes"] = size
        parts.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 1, "tid": 1,
             "ts": at + 1, "dur": 2, "args": {"correlation": number}}
        )  # fmt: skip
    return rank(*parts)


def test_many_small_copies_to_the_device():
    found = finding(copied(100, 64), "small-copies")
    assert found.time == pytest.approx(1e-3)
    assert "100 small copies" in found.title


@pytest.mark.parametrize(
    ("count", "size", "kind"),
    [(100, 1 << 20, "Memcpy HtoD"), (5, 64, "Memcpy HtoD"), (100, 64, "Memcpy DtoD")],
)
def test_copies_that_are_large_or_few_or_of_the_device_alone(count, size, kind):
    assert finding(copied(count, size, kind), "small-copies") is None


def test_no_finding_is_worth_more_than_the_time_that_it_speaks_of():
    records = [attention(SCORES).record(), elementwise(6, 60), copied(100, 64)]
    findings: list[Finding] = [found for record in records for found in record.findings]
    assert findings
    assert all(found.worth is None or found.worth <= found.time + 1e-12 for found in findings)
