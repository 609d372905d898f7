"""Kernels read from generated code, of the CPU and of a GPU, written by hand in its form."""

import pytest

from torchgauge.analyze.timeline.compared_layers import KernelCall, identity, kernel_calls

KNOWN = {"add", "relu", "threshold_backward", "_unsafe_view", "view", "sum", "mm"}
CPU = """\
# AOT ID: ['3_forward']
cpp_fused_relu_threshold_backward_0 = async_compile.cpp_pybinding(['float*'], r'''
extern "C"  void  kernel(float* in_out_ptr0)
''')
class Runner:
    def call(self, args):
        buf0 = empty_strided_cpu((2, 16), (16, 1), torch.float32)
        # Topologically Sorted Source Nodes: [linear, x], Original ATen: [aten.t, aten.addmm]
        # [Provenance debug handles] extern_kernels.addmm:2
        extern_kernels.addmm(primals_2, primals_3, out=buf0)
        buf1 = buf0; del buf0  # reuse
        cpp_fused_relu_threshold_backward_0(buf1, buf2)
"""
GPU = """\
# kernel path: /tmp/x.py
# Topologically Sorted Source Nodes: [wrong], Original ATen: [aten.wrong]
triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', '''
''')
def call(args):
    with torch.cuda._DeviceGuard(0):
        # Topologically Sorted Source Nodes: [add], Original ATen: [aten.add]
        stream0 = get_raw_stream(0)
        triton_poi_fused_add_0.run(arg0_1, buf0, 4, stream=stream0)
        # Topologically Sorted Source Nodes: [sort], Original ATen: [aten.sort]
        buf1 = torch.ops.aten.sort.stable(buf0)
"""


def known(name):
    return name in KNOWN


def test_calls_have_what_the_line_above_names_and_fused_ones_their_own_name():
    assert identity(CPU) == (3, "forward")
    assert kernel_calls(CPU, known) == [
        KernelCall(
            "extern_kernels.addmm",
            ("aten.t", "aten.addmm"),
            ("linear", "x"),
            10,
            "extern_kernels.addmm:2",
        ),
        KernelCall(
            "cpp_fused_relu_threshold_backward_0", ("aten.relu", "aten.threshold_backward"), (), 12
        ),
    ]


def test_kernels_of_a_gpu_say_their_source_where_they_are_called():
    assert identity(GPU) is None
    assert kernel_calls(GPU, known) == [
        KernelCall("triton_poi_fused_add_0", ("aten.add",), ("add",), 9),
        KernelCall("torch.ops.aten.sort.stable", ("aten.sort",), ("sort",), 11),
    ]


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("cpp_fused__unsafe_view_add_0", ["_unsafe_view", "add"]),
        ("triton_red_fused_add_sum_12", ["add", "sum"]),
        ("triton_poi_fused_new_relu_0", ["new", "relu"]),
        ("cpp_fused_0", []),
    ],
)
def test_a_name_is_split_into_the_longest_operators(name, operators):
    (call,) = kernel_calls(f"    {name}(buf0)\n", known)
    assert call.operators == tuple(f"aten.{one}" for one in operators)


def test_code_of_another_form_has_no_calls():
    assert kernel_calls("void run() { kernel(); }", known) == []
    assert kernel_calls("", known) == []
