"""Programs, records and dumps of ExecuTorch: read as its own libraries do, hostile ones refused."""

import json
import random
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from tests.support import executorch_files
from tests.support.flatbuffers import Scalar, Vector, flatbuffer

from torchgauge.errors import InputError
from torchgauge.readers.dialects.etdump import as_kineto
from torchgauge.readers.executorch.flatbuffer import DamagedError, is_dump, read_runs, root
from torchgauge.readers.executorch.lowering_file import read_lowering
from torchgauge.readers.executorch.program_file import read_method


def test_a_program_has_its_instructions_with_sizes_and_constants():
    method = read_method(executorch_files.path("portable.pte"))
    assert (method.name, method.branches) == ("forward", False)
    assert [tensor.type.sizes for tensor in method.inputs] == [(3, 4)]
    assert [tensor.type.sizes for tensor in method.outputs] == [(3, 2)]
    names = [call.operator for call in method.instructions]
    assert names == [
        "aten::permute_copy.out", "aten::addmm.out", "aten::relu.out", "aten::add.out",
        "aten::permute_copy.out", "aten::addmm.out", "aten::_softmax.out",
    ]  # fmt: skip
    bias, operand, weight, beta, alpha, *written = method.instructions[1].arguments
    assert [t.type.sizes for t in (bias, operand, weight)] == [(8,), (3, 4), (4, 8)]
    assert (beta, alpha) == (1, 1)
    assert [t.type.sizes for t in written] == [(3, 8), (3, 8)]
    assert bias.stored
    assert not weight.stored
    assert sorted(t.type.sizes for t in method.stored) == [(2,), (2, 8), (8,), (8,), (8, 4)]


def test_a_backends_part_is_one_instruction_and_sizes_may_be_bounds():
    (call,) = read_method(executorch_files.path("delegated.pte")).instructions
    assert (call.operator, call.delegated) == ("XnnpackBackend", True)
    (tensor,) = read_method(executorch_files.path("dynamic.pte")).inputs
    assert (tensor.type.sizes, tensor.bounded) == ((6, 4), True)


def test_a_record_has_layers_parameters_and_buffers():
    lowering = read_lowering(executorch_files.path("portable.etrecord"), "forward")
    layers = [lowering.layers[number] for number in range(7)]
    assert [(layer.path, layer.type) for layer in layers] == [
        ("body.linear", "Linear"), ("body.linear", "Linear"), ("body.act", "ReLU"),
        ("body", "Block"), ("head", "Linear"), ("head", "Linear"), ("", "Net"),
    ]  # fmt: skip
    assert {t.name: (t.shape, t.bytes, t.parameter) for t in lowering.tensors} == {
        "body.linear.weight": ((8, 4), 128, True), "body.linear.bias": ((8,), 32, True),
        "head.weight": ((2, 8), 64, True), "head.bias": ((2,), 8, True),
        "body.shift": ((8,), 32, False),
    }  # fmt: skip


@pytest.mark.parametrize("sized", [True, False])
def test_a_dump_has_its_runs(sized):
    data = executorch_files.dump(
        [executorch_files.event("Program::load_method", 0, 1, 5)],
        executorch_files.run(100, 30, 50),
        sized=sized,
    )
    assert is_dump(data)
    loading, run = read_runs(data)
    assert loading.execution is None
    assert (run.execution.begin, run.execution.end) == (100, 210)
    assert [(c.instruction, c.end - c.begin) for c in run.calls] == [(0, 30), (1, 50)]
    assert run.events[0].name == "add.out"


def test_a_backends_parts_are_told_from_instructions():
    runs = read_runs(executorch_files.path("delegated.etdp").read_bytes())
    executions = [run for run in runs if run.execution is not None]
    assert len(executions) == 3
    for run in executions:
        assert len(run.calls) == 1
        assert any("Fully Connected" in part.part for part in run.parts)
        assert sum(p.end - p.begin for p in run.parts) <= run.execution.end - run.execution.begin


def test_what_many_references_share_is_not_read_for_ever():
    (table,) = root(flatbuffer({1: [{0: Vector("q", *range(64))}]}, b"ET12")).tables(1)

    def read_often() -> None:
        for _ in range(1000):
            table.values(0, "q")

    with pytest.raises(DamagedError):
        read_often()


def mutants(data: bytes, count: int):
    draw = random.Random(0)
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            changed[draw.randrange(len(changed))] = draw.choice((0, 1, 127, 128, 255))
        yield bytes(changed[: draw.randrange(len(changed))] if draw.random() < 0.2 else changed)


def read_dump(path):
    try:
        read_runs(path.read_bytes())
    except ValueError as error:
        raise InputError("damaged", id="trace-malformed") from error


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("portable.pte", read_method),
        ("portable.etdp", read_dump),
        ("portable.etrecord", lambda path: read_lowering(path, "forward")),
    ],
)
def test_damaged_files_give_a_result_or_an_error(name, read, tmp_path):
    file, outcomes = tmp_path / name, {"read": 0, "refused": 0}
    for mutant in mutants(executorch_files.path(name).read_bytes(), 300):
        file.write_bytes(mutant)
        try:
            read(file)
            outcomes["read"] += 1
        except InputError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 0


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"<\0\0\0ET12" + b"\xff" * 60])
def test_what_is_no_program_is_refused(content, tmp_path):
    (tmp_path / "model.pte").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_method(tmp_path / "model.pte")
    assert caught.value.id == "pte-unreadable"


def test_a_record_of_another_method_or_without_texts_is_refused(tmp_path):
    for path in (executorch_files.path("portable.etrecord"), tmp_path / "empty.etrecord"):
        if not path.exists():
            zipfile.ZipFile(path, "w").close()
        with pytest.raises(InputError) as caught:
            read_lowering(path, "backward")
        assert caught.value.id == "etrecord-unreadable"


def test_fields_that_are_absent_have_their_defaults():
    table = root(flatbuffer({1: Scalar("i", 7)}, b"TEST"))
    assert table.number(0, "<i", -1) == -1
    assert table.number(1, "<i") == 7
    assert (table.text(2), table.values(2, "i"), list(table.tables(2)), table.table(2)) == (
        "", (), [], None
    )  # fmt: skip


@pytest.mark.parametrize("what", sorted(executorch_files.hostile_programs()))
def test_programs_made_to_do_harm_are_refused(what, tmp_path):
    path = tmp_path / "model.pte"
    path.write_bytes(executorch_files.hostile_programs()[what]())
    with pytest.raises(InputError) as caught:
        read_method(path)
    assert caught.value.id == "pte-unreadable"


@pytest.mark.parametrize("what", sorted(executorch_files.hostile_records(Path())))
def test_records_made_to_do_harm_are_refused(what, tmp_path):
    path = tmp_path / "model.etrecord"
    executorch_files.hostile_records(path)[what]()
    with pytest.raises(InputError) as caught:
        read_lowering(path, "forward")
    assert caught.value.id == "etrecord-unreadable"


def test_a_small_record_does_not_unpack_to_all_memory(tmp_path):
    path = tmp_path / "model.etrecord"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("debug_handle_map", b" " * (2**24 + 1))
    with pytest.raises(InputError) as caught:
        read_lowering(path, "forward")
    assert caught.value.id == "file-too-large"


def test_events_that_are_written_once_take_little_memory():
    event = executorch_files.event("OPERATOR_CALL", 0, 5, 6)
    events = [*[event] * 2500, executorch_files.event("Method::execute", 0, 0, 10)]
    padding = "x" * 100_000
    data = flatbuffer({1: [{0: padding, 3: events}]}, b"ED00")
    tracemalloc.start()
    try:
        trace = as_kineto(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(json.loads(trace)["traceEvents"]) == 2501
    assert peak < 10 * len(data)


def test_every_element_type_of_a_record_has_its_size(tmp_path):
    path = tmp_path / "model.etrecord"
    sizes = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 9: 4, 10: 8, 11: 16, 12: 1, 13: 2,
             28: 2, 29: 1, 30: 1, 31: 1, 32: 1, 33: 1, 34: 4, 35: 8}  # fmt: skip
    tensors = {f"w{code}": (code, [3]) for code in sizes}
    executorch_files.write_record(path, {}, (), tensors, parameters=list(tensors))
    stored = read_lowering(path, "forward").tensors
    assert {tensor.name: tensor.bytes for tensor in stored} == {
        f"w{code}": 3 * size for code, size in sizes.items()
    }
