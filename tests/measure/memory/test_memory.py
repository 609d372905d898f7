"""The memory of a step, equal to the byte to what a hand can count.

float32 has 4 bytes, int64 has 8. "Peak" comments walk through the step to its highest point.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from tests.support.step_memory import ADAM, measured, placed, total
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from torchgauge.errors import InputError, MeasurementError
from torchgauge.measure.memory import memory
from torchgauge.measure.recording.recording import record
from torchgauge.measure.step import prepared
from torchgauge.records.record import MeasurementWarning
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.training.training import Training


def sgd(momentum=0.0):
    return Training(
        loss=total, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=momentum, foreach=False)
    )


def assert_parts(result, **parts):
    expected = dict.fromkeys(result.parts, 0) | parts
    assert result.parts == expected
    assert result.peak == sum(expected.values())


class Call(nn.Module):
    """A module around a function of (module, inputs), with submodules by name."""

    def __init__(self, function, **children):
        super().__init__()
        self.function = function
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *args):
        return self.function(self, *args)


# ---- inference -------------------------------------------------------------------------------


def test_one_linear():
    result = measured(nn.Linear(8, 4), torch.ones(2, 8), batch=2)
    assert_parts(result, parameters=(8 * 4 + 4) * 4, inputs=2 * 8 * 4, outputs=2 * 4 * 4)
    assert result.peak == 144 + 64 + 32
    assert result.per_sample == (64 + 32) / 2
    assert result.retained_for_backward is None
    assert (result.step, result.device, result.how) == ("inference", "cpu", "measured")


def test_a_stack_peaks_where_two_neighbours_are_widest():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    # Peak: the activation (2·16) before and after ReLU. The output (2·4) comes when the first of
    # them is gone, and is smaller.
    assert_parts(
        measured(model, torch.ones(2, 8)),
        parameters=(8 * 16 + 16 + 16 * 4 + 4) * 4,
        inputs=2 * 8 * 4,
        activations=2 * (2 * 16 * 4),
    )


def test_in_place_relu_needs_one_activation_less():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 4))
    # Peak: 2·16 held while the output 2·4 is made.
    assert_parts(
        measured(model, torch.ones(2, 8)),
        parameters=(8 * 16 + 16 + 16 * 4 + 4) * 4,
        inputs=2 * 8 * 4,
        activations=2 * 16 * 4,
        outputs=2 * 4 * 4,
    )


def test_a_residual_holds_both_branches():
    def forward(self, x):
        a = self.one(x)
        return a + self.two(a)

    model = Call(forward, one=nn.Linear(8, 8), two=nn.Linear(8, 8))
    # Peak: a, two(a) and their sum, each 4·8.
    assert_parts(
        measured(model, torch.ones(4, 8)),
        parameters=2 * (8 * 8 + 8) * 4,
        inputs=4 * 8 * 4,
        activations=2 * (4 * 8 * 4),
        outputs=4 * 8 * 4,
    )


def test_two_large_intermediates_held_to_the_end():
    def forward(self, x):
        a, b = x.expand(100, 8).contiguous(), x.expand(50, 8).contiguous()
        return a.sum() + b.sum()

    # Peak: a (100·8), b (50·8), both sums and the sum of them (4 each, the last is the output).
    assert_parts(
        measured(Call(forward), torch.ones(8)),
        inputs=8 * 4,
        activations=100 * 8 * 4 + 50 * 8 * 4 + 4 + 4,
        outputs=4,
    )


def test_convolution_scratch_is_workspace():
    model = nn.Conv2d(3, 4, 3, padding=1)
    with torch.backends.mkldnn.flags(enabled=False):
        result = measured(model, torch.ones(1, 3, 8, 8))
    # The plain CPU kernel unfolds the input: 3·3·3 values for each of 8·8 positions.
    assert_parts(
        result,
        parameters=(4 * 3 * 3 * 3 + 4) * 4,
        inputs=3 * 8 * 8 * 4,
        outputs=4 * 8 * 8 * 4,
        workspace=3 * 3 * 3 * 64 * 4,
    )


def test_attention_by_its_products():
    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2), -1) @ v

    qkv = tuple(torch.ones(2, 3, 5, 4) for _ in range(3))
    # Peak: the scores (2·3·5·5) before and after softmax; the output (2·3·5·4) is smaller.
    assert_parts(
        measured(Call(forward), qkv), inputs=3 * 2 * 3 * 5 * 4 * 4, activations=2 * 2 * 3 * 25 * 4
    )


def test_layer_norm_keeps_mean_and_deviation_within_the_operator():
    # Scratch of the operator: mean and 1/std for each of 16 rows.
    assert_parts(
        measured(nn.LayerNorm(8), torch.ones(16, 8)),
        parameters=(8 + 8) * 4,
        inputs=16 * 8 * 4,
        outputs=16 * 8 * 4,
        workspace=2 * 16 * 4,
    )


def test_batch_norm_in_evaluation_has_buffers_and_scratch():
    # Scratch: scale and shift of 8 channels; num_batches_tracked is one int64.
    assert_parts(
        measured(nn.BatchNorm1d(8), torch.ones(16, 8)),
        parameters=(8 + 8) * 4,
        buffers=(8 + 8) * 4 + 8,
        inputs=16 * 8 * 4,
        outputs=16 * 8 * 4,
        workspace=2 * 8 * 4,
    )


def test_embedding_takes_indices_and_gives_rows():
    assert_parts(
        measured(nn.Embedding(100, 16), torch.zeros(2, 5, dtype=torch.int64)),
        parameters=100 * 16 * 4,
        inputs=2 * 5 * 8,
        outputs=2 * 5 * 16 * 4,
    )


def test_shared_storages_count_once():
    one = nn.Linear(8, 8, bias=False)
    two = nn.Linear(8, 8, bias=False)
    two.weight = one.weight
    x = torch.ones(2, 8)
    model = Call(lambda self, a, b: (self.one(a), self.two(b)), one=one, two=two)
    assert_parts(
        measured(model, (x, x.view(16)[:16].view(2, 8))),
        parameters=8 * 8 * 4,
        inputs=2 * 8 * 4,
        outputs=2 * (2 * 8 * 4),
    )


def test_outputs_in_containers_and_objects_are_found():
    class Result:
        def __init__(self, tensor):
            self.tensor = tensor

    def forward(self, x):
        return [x.sin(), {"a": x.cos(), "b": (x.tan(), Result(x.exp()))}]

    assert_parts(measured(Call(forward), torch.ones(10)), inputs=40, outputs=4 * 40)


def test_an_output_that_is_a_view_of_the_input_is_the_input():
    assert_parts(measured(nn.Flatten(), torch.ones(2, 3, 4)), inputs=2 * 3 * 4 * 4)


def test_an_output_that_is_a_parameter_is_a_parameter():
    model = Call(lambda self, x: self.one.weight, one=nn.Linear(8, 4, bias=False))
    assert_parts(measured(model, torch.ones(1)), parameters=8 * 4 * 4, inputs=4)


def test_a_view_of_a_larger_result_holds_all_of_it():
    model = Call(lambda self, x: x.expand(100, 10).contiguous()[:1])
    assert_parts(measured(model, torch.ones(10)), inputs=40, outputs=1000 * 4)


def test_what_the_first_call_leaves_in_the_module_is_no_activation():
    def forward(self, x):
        if not hasattr(self, "mask"):
            self.register_buffer("mask", torch.zeros(1000))
            self.cache = [torch.zeros(500)]
        self.last = x.sin()
        return x.cos()

    # A buffer by its name; a tensor in a plain attribute is known to be held, and not what for
    # (the list, and what the step before left in `last`). What this step makes is an activation.
    model = Call(forward)
    assert_parts(
        measured(model, torch.ones(10)),
        buffers=4000,
        workspace=2000 + 40,
        inputs=40,
        activations=40,
    )
    assert not hasattr(model, "mask")
    assert not hasattr(model, "last")


def test_a_reference_cycle_of_the_first_step_is_not_in_the_second():
    def forward(self, x):
        cycle = [x.sin()]
        cycle.append(cycle)
        return x.cos()

    gc.disable()  # or it might come by itself
    try:
        result = measured(Call(forward), torch.ones(10))
    finally:
        gc.enable()
    assert_parts(result, inputs=40, activations=40, outputs=40)


def test_a_callable_that_is_no_module():
    # The Python number comes as one float64, and is cast to one float32 within the operator.
    assert_parts(measured(lambda x: x * 2, torch.ones(10)), inputs=40, outputs=40, workspace=8 + 4)


def test_a_compiled_region_is_one_operator():
    def forward(x):
        return x.sin().sum(dim=0)

    def backend(graph, _):
        return graph.forward

    model = torch.compile(forward, backend=backend)
    # Peak: sin(x), 50·8, freed inside the region, and the output.
    result = measured(model, torch.ones(50, 8))
    assert_parts(result, inputs=1600, outputs=32, workspace=1600)
    assert result.warnings == ()  # threads that compile are not threads of the step


def test_gradients_that_the_caller_holds_are_there_in_inference_too():
    model = nn.Linear(8, 4, bias=False)
    model.weight.grad = torch.ones(4, 8)
    assert_parts(
        measured(model, torch.ones(2, 8)), parameters=128, gradients=128, inputs=64, outputs=32
    )


# ---- training --------------------------------------------------------------------------------


def test_training_one_linear_with_sgd():
    result = measured(nn.Linear(8, 4), torch.ones(2, 8), sgd())
    # Peak, in backward: output 32, loss 4, its gradient 4, the weight's gradient 128, and the
    # product's contiguous copy of the expanded output gradient 32. The bias gradient (16) comes
    # when that is freed. Retained: the input is saved, and is an input.
    assert_parts(
        result,
        parameters=144,
        inputs=64,
        outputs=32,
        activations=4 + 4,
        gradients=128,
        workspace=32,
    )
    assert result.retained_for_backward == 0
    assert result.step == "training"


def test_momentum_is_one_more_copy_of_the_parameters():
    plain = measured(nn.Linear(8, 4), torch.ones(2, 8), sgd())
    result = measured(nn.Linear(8, 4), torch.ones(2, 8), sgd(momentum=0.9))
    assert result.parts == plain.parts | {"optimizer": (8 * 4 + 4) * 4}


def test_adam_holds_two_moments_and_a_step_count_and_peaks_in_its_own_step():
    result = measured(nn.Linear(8, 4, bias=False), torch.ones(2, 8), ADAM)
    # Peak, in the optimizer: √v (128), and √v/√(1−β₂ᵗ) made by a division whose divisor is a
    # Python number (8 as float64, 4 as float32): 128 + 8 + 4 + 128. Loss and its gradient are
    # gone. State: two moments of 32 and one step count of 4 bytes.
    assert_parts(
        result,
        parameters=128,
        inputs=64,
        outputs=32,
        gradients=128,
        optimizer=2 * 128 + 4,
        workspace=128 + 8 + 4 + 128,
    )


def test_tied_weights_accumulate_one_gradient():
    one = nn.Linear(8, 8, bias=False)
    two = nn.Linear(8, 8, bias=False)
    two.weight = one.weight
    result = measured(nn.Sequential(one, two), torch.ones(2, 8), sgd())
    # Peak: hidden 64, output 64, loss 4 and its gradient 4; the two products' gradients (256 each)
    # have not been added up when their sum, which becomes .grad, is allocated; the hidden
    # gradient (64) was freed.
    assert_parts(
        result,
        parameters=256,
        inputs=64,
        outputs=64,
        activations=64 + 4 + 4 + 256 + 256 - 64,
        gradients=256,
    )
    assert result.retained_for_backward == 2 * 8 * 4


def test_batch_norm_in_training_saves_its_statistics():
    # With two dimensions torch would take a row of scratch for each thread; with three it does not.
    result = measured(nn.BatchNorm1d(8), torch.ones(16, 8, 3), sgd())
    # Saved: mean and 1/std of 8 channels; the input is an input.
    assert result.retained_for_backward == 2 * 8 * 4
    # Peak, in backward: beside those the loss and its gradient, and 32 of scratch while the
    # gradients of weight and bias are computed.
    assert_parts(
        result,
        parameters=64,
        buffers=72,
        inputs=1536,
        outputs=1536,
        activations=2 * 32 + 2 * 4,
        gradients=64,
        workspace=32,
    )


def test_retained_for_backward_of_a_stack_with_dropout():
    model = nn.Sequential(
        nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.Dropout(), nn.Linear(1000, 10)
    )
    result = measured(model, torch.ones(64, 1000), sgd())
    # ReLU keeps its result, Dropout its mask (float on the CPU), the last layer its input;
    # 64·1000 float32 each. A sum over saved tensors, 5,320,000, counts weights and inputs too.
    assert result.retained_for_backward == 3 * 64 * 1000 * 4 == 768_000


def test_the_model_own_loss_and_adamw():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 4)

        def forward(self, x):
            return {"loss": self.linear(x).sum()}

    result = measured(Own(), torch.ones(2, 8), True)
    assert result.parts["optimizer"] == 2 * 144 + 2 * 4
    assert result.parts["outputs"] == 4


def test_autocast_casts_the_weights_in_every_step():
    placement = dataclasses.replace(
        placed(nn.Linear(8, 4, bias=False), torch.ones(2, 8)), precision="bf16", method="autocast"
    )
    # Kept by autocast until it is left: the weight in bfloat16. Saved: the input in bfloat16.
    result = memory.measure(placement, train=sgd())
    assert result.retained_for_backward == 8 * 4 * 2 + 2 * 8 * 2


def test_cast_weights_are_gone_before_the_optimizer_steps():
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))
    placement = dataclasses.replace(
        placed(model, torch.ones(1, 512)), precision="bf16", method="autocast"
    )
    result = memory.measure(placement, train=ADAM)
    # Peak, in the optimizer at a weight (n float32): √v, its quotient by a Python number (8 + 4),
    # and the quotient of the bias before (512). In bfloat16 only the output is left of the forward;
    # the cast weights, 4·(n + 512)·2 bytes, went with the backward pass.
    n = 512 * 512
    assert_parts(
        result,
        parameters=4 * (n + 512) * 4,
        inputs=512 * 4,
        outputs=512 * 2,
        gradients=4 * (n + 512) * 4,
        optimizer=2 * 4 * (n + 512) * 4 + 8 * 4,
        workspace=2 * n * 4 + 8 + 4 + 512 * 4,
    )
    assert result.peak == 18_912_300


def saved_by_hooks(model, x):
    """Return the bytes autograd saved that are neither weights, inputs nor outputs."""
    held = [*model.parameters(), *model.buffers(), x]
    known = {StorageWeakRef(t.untyped_storage()).cdata for t in held}
    saved = {}

    def pack(tensor):
        reference = StorageWeakRef(tensor.untyped_storage())
        if reference.cdata not in known:
            saved.setdefault(reference.cdata, (reference, tensor.untyped_storage().nbytes()))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = model(x)
    mine = {StorageWeakRef(t.untyped_storage()).cdata for t in tensors_in(outputs)}
    return sum(n for key, (ref, n) in saved.items() if key not in mine and not ref.expired())


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1)), (4, 8)),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True)), (2, 3, 9, 9)),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout()),
            (2, 3, 8, 8),
        ),
        (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
        (Call(lambda self, x: self.rnn(x)[0].sigmoid(), rnn=nn.GRUCell(8, 8)), (4, 8)),
    ],
)
def test_retained_for_backward_equals_an_independent_count(model, shape):
    x = torch.randn(shape)
    expected = saved_by_hooks(model.train(), x)
    assert expected > 0
    assert measured(model, x, sgd()).retained_for_backward == expected


# ---- the record ------------------------------------------------------------------------------


@pytest.mark.parametrize("train", [None, ADAM])
def test_a_second_measurement_after_frees_outside_gives_the_same(train):
    model, x = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)), torch.ones(2, 8)
    first = measured(model, x, train)
    for size in (32, 64, 128, 512):  # addresses of these are used again inside the recording
        held = [torch.empty(size, dtype=torch.uint8) for _ in range(50)]
        del held
    again = measured(model, x, train)
    assert (first.peak, first.parts) == (again.peak, again.parts)
    assert first.retained_for_backward == again.retained_for_backward
    assert [point.live for point in first.timeline] == [point.live for point in again.timeline]


def test_the_timeline_starts_at_the_baseline_and_holds_the_peak():
    result = measured(nn.Sequential(nn.Linear(8, 16), nn.ReLU()), torch.ones(2, 8))
    base = (8 * 16 + 16) * 4 + 64
    assert [point.live - base for point in result.timeline] == [0, 128, 256, 128]
    assert result.timeline[0].time == 0
    times = [point.time for point in result.timeline]
    assert times == sorted(times)
    assert base < result.average < result.peak


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/clear_refs")
def test_the_resident_set_sees_what_a_step_touches():
    def forward(self, x):
        return torch.ones(50_000_000).sum() + x.sum()

    result = measured(Call(forward), torch.ones(2))
    assert result.rss_peak - result.rss_before == pytest.approx(200_000_000, rel=0.05)
    assert result.rss_gap == result.rss_peak - result.peak


@pytest.mark.thorough
def test_copies_made_for_hygiene_are_not_in_the_resident_set():
    model = nn.Linear(5000, 5000, bias=False)  # 100 MB of parameters, gradients, and copies

    def before(train):
        return measured(model, torch.ones(2, 5000), train).rss_before

    # The gradients of the step before are held; the copy would make it 200 MB.
    assert before(sgd()) - before(None) == pytest.approx(100_000_000, rel=0.1)


# ---- what a device's allocator holds besides (its answer is a fake here) -----------------------


def allocator_says(monkeypatch, size):
    monkeypatch.setattr(memory.process_memory, "allocated", lambda device: size)


def test_what_the_allocator_holds_without_a_name_is_workspace(monkeypatch):
    allocator_says(monkeypatch, 144 + 64 + 1000)
    result = measured(nn.Linear(8, 4), torch.ones(2, 8))
    assert_parts(result, parameters=144, inputs=64, outputs=32, workspace=1000)


def test_the_callers_own_model_beside_its_copy_is_not(monkeypatch):
    placement = placed(nn.Linear(8, 4), torch.ones(2, 8))
    placement.model.weight.grad = torch.ones(4, 8)
    copied = dataclasses.replace(
        placement, model=copy.deepcopy(placement.model), inputs=placement.inputs.map(torch.clone)
    )
    # Model and inputs twice, the gradient once.
    allocator_says(monkeypatch, 2 * (144 + 64) + 128 + 1000)
    assert memory.measure(copied).parts["workspace"] == 1000


def test_copies_to_put_back_are_not(monkeypatch):
    @contextlib.contextmanager
    def copying(placement, train):
        with prepared(placement, train) as step:
            step.saved_state.device = 500
            yield step

    monkeypatch.setattr(memory, "prepared", copying)
    allocator_says(monkeypatch, 144 + 64 + 500 + 1000)
    assert measured(nn.Linear(8, 4), torch.ones(2, 8)).parts["workspace"] == 1000


def test_gradients_put_away_for_training_are_not(monkeypatch):
    model = nn.Linear(8, 4, bias=False)
    alone = measured(model, torch.ones(2, 8), sgd()).parts
    model.weight.grad = torch.ones(4, 8)
    # In the second step: parameters, inputs, the first one's gradients, and the caller's.
    allocator_says(monkeypatch, 128 + 64 + 128 + 128 + 1000)
    parts = measured(model, torch.ones(2, 8), sgd()).parts
    assert parts == alone | {"workspace": alone["workspace"] + 1000}


def test_what_the_allocator_cannot_tell_is_a_warning(monkeypatch):
    warning = MeasurementWarning(id="fragmentation-unknown", message="…", probe="memory")
    found = memory.process_memory.Allocator(peak=500, warnings=(warning,))
    watched = lambda device, what: contextlib.nullcontext(found)  # noqa: E731
    monkeypatch.setattr(memory.process_memory, "watched", watched)
    result = measured(nn.Linear(8, 4), torch.ones(2, 8))
    assert result.warnings == (warning,)
    assert (result.allocator_peak, result.fragmentation) == (500, None)


# ---- what can go wrong -----------------------------------------------------------------------


def test_the_meta_device_is_refused():
    for train in (None, sgd()):
        with pytest.raises(InputError) as error:
            measured(nn.Linear(2, 2, device="meta"), torch.ones(1, 2), train)
        assert error.value.id == "meta-model"


def test_another_device_is_refused():
    with pytest.raises(InputError) as error:
        memory.measure(placed(nn.Linear(2, 2), torch.ones(1, 2), device="mps"))
    assert error.value.id == "device-unsupported"


@pytest.mark.parametrize("call", range(4))
def test_a_forward_that_raises_is_named_and_leaves_no_profiler(call):
    calls = []

    def forward(self, x):
        calls.append(x)
        if len(calls) > call:
            raise ValueError("no such expert")
        return self.one(x)

    model = Call(forward, one=nn.Linear(2, 2))
    before = dict(vars(model))
    with pytest.raises(MeasurementError) as error:
        measured(model, torch.ones(1, 2))
    assert error.value.id == "forward-raised"
    assert error.value.cause == "In Call: ValueError: no such expert"
    assert isinstance(error.value.__cause__, ValueError)
    assert not torch._C._autograd._profiler_enabled()
    assert vars(model) == before
    assert model.training


def test_an_optimizer_that_cannot_be_made_is_named():
    how = Training(loss=total, optimizer=lambda params: torch.optim.SGD(params, lr=-1.0))
    with pytest.raises(MeasurementError, match="Making the optimizer raised ValueError"):
        measured(nn.Linear(2, 2), torch.ones(1, 2), how)


def test_a_loss_that_raises_is_the_training_step():
    how = Training(loss=lambda out, x: {}["labels"], optimizer=torch.optim.Adam)
    with pytest.raises(MeasurementError, match="The training step raised KeyError") as error:
        measured(nn.Linear(2, 2), torch.ones(1, 2), how)
    assert error.value.id == "forward-raised"


def test_inside_another_profiler_it_refuses_and_lets_that_one_go_on():
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as outer:
        with pytest.raises(MeasurementError) as error:
            measured(nn.Linear(2, 2), torch.ones(1, 2))
        torch.ones(3).cos()
    assert error.value.id == "profiler-active"
    assert "aten::cos" in {event.name for event in outer.events()}


def test_other_threads_are_warned_about():
    def forward(self, x):
        thread = threading.Thread(target=lambda: torch.ones(1000).add_(1))
        thread.start()
        thread.join()
        return x + 1

    result = measured(Call(forward), torch.ones(10))
    assert [warning.id for warning in result.warnings] == ["threads-unrecorded"]
    assert measured(Call(lambda self, x: x + 1), torch.ones(10)).warnings == ()


@pytest.mark.thorough
def test_nothing_is_printed(capfd):
    # torch warns at every thousandth free of a block older than the recording: gradients are such.
    many = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(1001))
    measured(Call(lambda self, x: torch.cat(list(self.many)) + x, many=many), torch.ones(1), sgd())
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.slow
def test_nothing_is_printed_by_the_first_measurement_of_a_process():
    # Of blocks older than the recording torch warns at the very first free, too: here `last`.
    code = (
        "import sys, torch; sys.path.insert(0, sys.argv[1])\n"
        "from test_memory import Call, measured\n"
        "def forward(self, x):\n"
        "    self.last = x.sin()\n"
        "    return x.cos()\n"
        "print(measured(Call(forward), torch.ones(10)).parts['activations'])"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("40\n", "")


def test_what_others_write_to_stderr_is_passed_on(capfd):
    class Noisy(torch.profiler.profile):
        def start(self):
            os.write(2, b"from elsewhere\n")
            super().start()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchgauge.measure.recording.recording.profile", Noisy)
        record(lambda: os.write(2, b"from the model\n"))
    assert capfd.readouterr().err == "from elsewhere\nfrom the model\n"


@pytest.mark.slow
def test_a_closed_stderr_is_no_obstacle():
    code = (
        "import os, torch; os.close(2)\n"
        "from torchgauge.measure.recording.recording import record\n"
        "print(len(record(lambda: torch.ones(2))) > 0)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "True\n"
