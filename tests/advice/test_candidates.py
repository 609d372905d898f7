"""Every candidate's code is run as it is shown, on models that it fits."""

import dataclasses
import importlib.util
import subprocess
import sys

import msgspec
import pytest
import torch
from tests.support.advice_models import Attention, bert, convolutional
from tests.support.advice_worlds import TARGET, training_facts
from tests.support.advice_worlds import facts as made
from tests.support.torch_settings import restored
from torch import nn

from torchgauge.advice.candidate import ORDERS
from torchgauge.advice.candidates.every import ALL_CANDIDATES, select_candidates
from torchgauge.errors import InputError, MeasurementError
from torchgauge.measure.advice.facts import facts
from torchgauge.measure.advice.outputs import compared, host_copies
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.targets.builds.source import Source
from torchgauge.targets.changed_target import ChangedOptimizer, changed, execute
from torchgauge.targets.training.training import Training

KNOWN = {one.id: one for one in ALL_CANDIDATES}
IMAGE = {"image_inputs": True, "layers": {"Conv2d": 1, "BatchNorm2d": 1, "Linear": 1}}
# Those whose lines cannot be run here: what they need is not on this machine, or is the user's.
ELSEWHERE = {
    "cuda-graphs": "a GPU", "int8-weights": "torchao", "fsdp": "a process group",
    "tensor-parallel": "a process group", "gradient-accumulation": "the user's loop",
    "pinned-memory": "the user's loader", "loader-workers": "the user's loader",
    "dynamic-batching": "the user's server", "memory-pool": "the user's server",
    "graph-basic": "an ONNX file", "graph-extended": "an ONNX file", "graph-all": "an ONNX file",
    "openvino": "an ONNX file", "onnx-no-arena": "an ONNX file",
}  # fmt: skip


def placed(model, inputs):
    return Source.of_object(model, inputs).open()


@pytest.fixture(autouse=True)
def _watched_shortly(monkeypatch):
    """What else the machine does is no matter here."""
    monkeypatch.setattr("torchgauge.measure.advice.facts.WATCHED", 0.02)


def look(model, inputs, **changes):
    found = facts(placed(model, inputs), LatencyOptions())
    return dataclasses.replace(found, **changes) if changes else found


def test_ids_are_unique_and_code_is_short():
    assert len(KNOWN) == len(ALL_CANDIDATES)
    for one in ALL_CANDIDATES:
        assert 1 <= len(one.code(made()).splitlines()) <= 3, one.id
        assert max(map(len, one.code(made(float_kwargs=True)).splitlines())) <= 110, one.id
        assert one.order in ORDERS


MODELS = {
    "sdpa": bert, "int8-dynamic": bert, "fold-batch-norm": convolutional,
    "gradient-checkpointing": bert,
}  # fmt: skip
ON_MODEL = [
    one.id
    for one in ALL_CANDIDATES
    if one.language == "python" and one.on == "model" and one.id not in ELSEWHERE
    and not one.id.startswith("compile") and one.id != "interop-threads"
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("id", ON_MODEL)
def test_code_on_a_model_keeps_its_output_within_the_tolerance(id):
    one = KNOWN[id]
    model, inputs = MODELS.get(id, convolutional)()
    before = host_copies(_called(placed(model, inputs)))
    with restored():
        placement = changed(placed(model, inputs), [one.code(look(model, inputs))])
        after = host_copies(_called(placement))
    check = compared(before, after, one.tolerance, times=one.times)
    assert check.passed, check
    if id.endswith(("-cast", "-autocast", "int8-dynamic")):
        assert check.max_relative > 1e-6  # it did compute in fewer bits


def _called(placement):
    with torch.no_grad():
        return placement.model(*placement.inputs.args, **placement.inputs.kwargs)


def test_code_that_compiles_is_run_by_another_backend():
    """Whether a compiler works is torch's matter, and takes its time."""
    ran = []
    for name in ("compile", "compile-reduce-overhead", "compile-max-autotune"):
        model, inputs = convolutional()
        names = {"model": model, "args": (inputs,), "kwargs": {}}
        compile_, torch.compile = torch.compile, lambda model, mode="default": ran.append(mode)
        try:
            execute(KNOWN[name].code(made()), names)
        finally:
            torch.compile = compile_
    assert ran == ["default", "reduce-overhead", "max-autotune"]


@pytest.mark.parametrize("id", ["optimizer-fused", "optimizer-foreach", "zero-grad-none"])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam])
def test_code_on_an_optimizer_takes_the_same_steps(id, kind):
    ends = []
    for make in (kind, ChangedOptimizer(kind, (KNOWN[id].code(made()),))):
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        optimizer = make(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
        ends.append(model.weight.detach())
    torch.testing.assert_close(*ends)
    if id != "zero-grad-none":
        assert optimizer.param_groups[0][id.partition("-")[2]] is True


@pytest.mark.thorough
@pytest.mark.parametrize("id", [one.id for one in ALL_CANDIDATES if one.language == "shell"])
def test_shell_lines_set_what_the_process_gets(id):
    one, known = KNOWN[id], made(allocators={id: "/lib/none.so"})
    said = one.variables(known)
    assert said
    shown = f"import os; print(*(os.environ.get(name) for name in {list(said)}))"
    code = one.code(known).replace("LD_PRELOAD", "PRELOAD")
    shown = shown.replace("LD_PRELOAD", "PRELOAD")
    out = subprocess.run(
        ["sh", "-c", f'{code}\n"{sys.executable}" -c "{shown}"'],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert out.stdout.split() == list(said.values())


@pytest.mark.slow
def test_threads_between_operators_are_set_where_that_cannot_be_undone():
    code = f"import torch\n{KNOWN['interop-threads'].code(made())}\n"
    shown = code + "print(torch.get_num_interop_threads())"
    out = subprocess.run([sys.executable, "-c", shown], check=True, capture_output=True, text=True)
    assert out.stdout.split() == ["1"]


def test_every_candidate_is_run_or_named_as_not():
    run = {
        *ON_MODEL,
        "interop-threads",
        "compile",
        "compile-reduce-overhead",
        "compile-max-autotune",
    }
    run |= {one.id for one in ALL_CANDIDATES if one.language == "shell" or one.on == "optimizer"}
    assert run | set(ELSEWHERE) == set(KNOWN)


def test_folding_is_right_where_statistics_are_not_trivial():
    model, x = convolutional()
    folded = changed(placed(model, x), [KNOWN["fold-batch-norm"].code(made())]).model
    kinds = {type(layer) for layer in folded.modules()}
    assert nn.BatchNorm2d not in kinds
    torch.testing.assert_close(folded(x), model(x), rtol=1e-4, atol=1e-5)
    assert nn.BatchNorm2d in {type(layer) for layer in model.modules()}  # the user's stays


def test_a_model_with_attention_of_its_own_is_not_touched():
    known = look(Attention(), torch.randn(1, 4, 8))
    assert "no switch" in KNOWN["sdpa"].untried(known)


@pytest.mark.thorough
def test_attention_is_switched_where_it_is_eager():
    model, inputs = bert()
    assert KNOWN["sdpa"].untried(look(model, inputs)) is None
    placement = changed(placed(model, inputs), [KNOWN["sdpa"].code(made())])
    assert placement.model.config._attn_implementation == "sdpa"
    assert "already" in KNOWN["sdpa"].untried(look(*bert(attention="sdpa")))


CASES = [
    ("channels-last", made(layers={"Linear": 1}), "convolution"),
    ("channels-last", made(layers={"Conv2d": 1}), "four dimensions"),
    ("fold-batch-norm", made(layers={"Conv1d": 1, "BatchNorm2d": 1}), "no batch norm"),
    ("bf16-cast", made(dtypes=("bfloat16",)), "fp32"),
    ("bf16-cast", made(plain_inputs=False), "plain tensors"),
    ("bf16-autocast", made(bf16=False), "bf16"),
    ("fp16-autocast", training_facts(), "scaler"),
    ("tf32", made(), "NVIDIA"),
    ("compile", made(compiler=False), "compiler"),
    ("compile", made(module=False), "plain callable"),
    ("compile", made(compiler=True, compiled=True), "compiled"),
    ("compile-reduce-overhead", made(), "CUDA graphs"),
    ("int8-dynamic", made(layers={}), "Linear"),
    ("int8-weights", made(), "torchao"),
    ("threads-one", made(threads=1), "already"),
    ("threads-half", made(threads=2), "candidate of its own"),
    ("jemalloc", made(), "not installed"),
    ("malloc-keep", made(), "C library"),
    ("malloc-keep", made(glibc=True, variables={"LD_PRELOAD": "x"}), "set up already"),
    ("batch-x2", made(), "--latency-limit"),
    ("optimizer-fused", made(), "training step"),
    ("optimizer-fused", training_facts(optimizer="RMSprop"), "RMSprop"),
    ("gradient-checkpointing", training_facts(), "no switch"),
    ("activation-offload", training_facts(), "already"),
    ("inference-mode", training_facts(), "inference"),
    ("inference-mode", made(target=msgspec.structs.replace(TARGET, grad_mode="no_grad")), "itself"),
    ("fsdp", made(), "estimated"),
]  # fmt: skip


@pytest.mark.parametrize(("id", "known", "said"), CASES)
def test_what_does_not_fit_says_why(id, known, said):
    assert said in KNOWN[id].untried(known)


FITS = [
    ("channels-last", made(**IMAGE)), ("fold-batch-norm", made(**IMAGE)), ("bf16-cast", made()),
    ("compile", made(compiler=True)), ("int8-dynamic", made()),
    ("int8-weights", made(torchao=True)),
    ("threads-one", made(threads=2)), ("threads-half", made(threads=8)),
    ("malloc-keep", made(glibc=True)), ("jemalloc", made(allocators={"jemalloc": "x"})),
    ("batch-x2", made(latency_limit=1.0)), ("optimizer-fused", training_facts(optimizer="AdamW")),
    ("gradient-checkpointing", training_facts(switches=("gradient_checkpointing_enable",))),
    ("bf16-autocast", training_facts()),
]  # fmt: skip


@pytest.mark.parametrize(("id", "known"), FITS)
def test_what_fits_is_tried(id, known):
    assert KNOWN[id].untried(known) is None


def test_sharding_is_estimated_by_what_each_device_holds_and_sends():
    known = training_facts(
        optimizer="AdamW", parameter_bytes=800, trainable_bytes=800, activation_bytes=100
    )
    figures = {one.name: one.value for one in KNOWN["fsdp"].assumed(known)}
    # Weights, gradients and two states over four devices, and all else of a call.
    assert figures["memory of each of 4"] == 4 * 800 / 4 + 100
    assert figures["sent by each of 4, a step"] == 3 * 800 * 3 / 4
    inference = {one.name: one.value for one in KNOWN["fsdp"].assumed(made(parameter_bytes=800))}
    assert inference == {
        "sent by each of 2, a step": 400, "sent by each of 4, a step": 600,
        "sent by each of 8, a step": 700,
    }  # fmt: skip


def test_candidates_are_chosen_by_id_or_beginning():
    assert select_candidates(None) == ALL_CANDIDATES
    assert [one.id for one in select_candidates(["compile", "bf16-*"])] == [
        "compile", "bf16-autocast", "bf16-cast"
    ]  # fmt: skip
    with pytest.raises(InputError, match="no candidate 'no'") as caught:
        select_candidates(["no"])
    assert caught.value.id == "candidate-unknown"


def test_code_that_does_not_work_on_a_model_is_an_error_with_its_cause():
    with pytest.raises(MeasurementError, match="no attribute") as caught:
        changed(placed(*convolutional()), ["model.nothing()"])
    assert caught.value.id == "change-raised"


def test_facts_of_a_training_step_name_its_optimizer():
    train = Training(loss=lambda out, _: out.mean(), optimizer=torch.optim.SGD)
    model, x = convolutional()
    found = facts(placed(model, x), LatencyOptions(train=train))
    assert (found.optimizer, found.training) == ("SGD", True)
    assert found.activation_bytes < found.memory
    assert found.layers["Conv2d"] == 2


def test_facts_say_who_else_used_the_machine(monkeypatch):
    from torchgauge.device.load import Load, LoadWatch

    monkeypatch.setattr(LoadWatch, "load", lambda _: Load(other=0.5, steal=None, throttled=None))
    (warning,) = look(*convolutional()).warnings
    assert warning.id == "other-load"


def test_a_folder_of_a_package_s_name_is_not_the_package(tmp_path, monkeypatch):
    (tmp_path / "torchao").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torchao", raising=False)
    importlib.invalidate_caches()
    known = look(*convolutional())
    installed = importlib.util.find_spec("torchao").origin is not None
    assert known.torchao is installed
