"""Stamps at the kernels of generated code, here written by hand in the form of Inductor's."""

import itertools
from types import ModuleType, SimpleNamespace

from torch import nn

from torchgauge.analyze.timeline.call_tree import Call
from torchgauge.analyze.timeline.compared_layers import kernel_calls
from torchgauge.measure.recording.modules import Modules
from torchgauge.measure.timeline.compilation import KernelSite
from torchgauge.measure.timeline.eager_comparison import KernelStamps

CODE = """\
def partition_0(args):
    cpp_fused_relu_0(args)

class Runner:
    def call(self, args):
        buf0 = extern_kernels.addmm(args)
        if args:
            cpp_fused_relu_0(buf0)
        partition_0(buf0)
        return buf0

runner = Runner()
call = runner.call
"""


def generated(path):
    path.write_text(CODE)
    code = ModuleType("generated")
    code.__file__ = str(path)
    code.called = []
    code.cpp_fused_relu_0 = code.called.append
    code.extern_kernels = SimpleNamespace(addmm=lambda args: [*args, "product"])
    exec(compile(CODE, str(path), "exec"), vars(code))
    return code


def test_each_call_is_noted_and_the_code_is_put_back(tmp_path):
    code = generated(tmp_path / "code.py")
    before = [f.__code__ for f in (code.Runner.call, code.partition_0)], set(vars(code))
    sites = [KernelSite(code, call, None, backward=False) for call in kernel_calls(CODE, bool)]
    assert [site.call.line for site in sites] == [2, 6, 8]
    modules = Modules(nn.Identity())
    stamps = KernelStamps(sites, modules, itertools.count(0, 10).__next__)
    with stamps.watching():
        assert code.call(["x"]) == ["x", "product"]
    assert code.called == [["x", "product"]] * 2
    calls = stamps.take_calls()
    lines = [stamps.sites[call.module].call.line for call in calls]
    assert lines == [6, 8, 2]
    assert [(call.start, call.end) for call in calls] == [(0, 10), (20, 30), (40, 50)]
    assert all(isinstance(call, Call) for call in calls)
    assert ([f.__code__ for f in (code.Runner.call, code.partition_0)], set(vars(code))) == before
    code.call(["x"])
    assert stamps.take_calls() == []
