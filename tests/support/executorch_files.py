"""Files that ExecuTorch 1.5.1 wrote of a small model, and dumps made by hand.

The model is body (linear 4 → 8, act, + a buffer `shift`) and head (linear 8 → 2), with a softmax,
on 3 × 4 numbers. `portable` runs on ExecuTorch's own kernels, `delegated` in XNNPACK, `dynamic` has
up to 6 samples. Of the ETRecords only the texts are there that are read.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.support.flatbuffers import Fields, Scalar, Vector, flatbuffer
from tests.support.paths import DATA

FILES = DATA / "executorch"
INTS, TENSORS = 7, 10  # kinds of lists


def event(name: str, instruction: int, begin: int, end: int, part: str = "") -> dict[int, Any]:
    """Return an event of a dump."""
    fields = {
        0: name, 2: Scalar("i", instruction), 6: Scalar("Q", begin), 7: Scalar("Q", end),
    }  # fmt: skip
    return {0: fields | ({4: part} if part else {})}


def dump(*runs: list[dict[int, Any]], sized: bool = True) -> bytes:
    """Return a dump of runs, each a list of events."""
    tables = [{0: "Execute", 3: events} for events in runs]
    return flatbuffer({0: Scalar("I", 0), 1: tables}, b"ED00", sized=sized)


def run(begin: int, *durations: int) -> list[dict[int, Any]]:
    """Return the events of a run: a call of each instruction, 10 ns before it and 20 ns after."""
    events, now = [], begin + 10
    for number, duration in enumerate(durations):
        events.append(event("native_call_add.out", number, now + 1, now + duration - 1))
        events.append(event("OPERATOR_CALL", number, now, now + duration))
        now += duration
    return [*events, event("Method::execute", 0, begin, now + 20)]


def path(name: str) -> Path:
    """Return the path of one of the files."""
    return FILES / name


def number(value: int) -> Fields:
    """Return a whole number as a value of a program."""
    return {0: Scalar("B", 2), 1: {0: Scalar("q", value)}}


def tensor(*sizes: int, dtype: int = 6, bounded: bool = False, stored: int = 0) -> Fields:
    """Return a tensor of float32 or another type as a value of a program.

    It is stored in the buffer of this number.
    """
    fields: Fields = {0: Scalar("b", dtype), 2: Vector("i", *sizes), 8: Scalar("b", bounded)}
    return {0: Scalar("B", 5), 1: fields | ({5: Scalar("I", stored)} if stored else {})}


def several(kind: int, *indices: int) -> Fields:
    """Return a list of the values with these indices as a value of a program."""
    return {0: Scalar("B", kind), 1: {0: Vector("q" if kind == INTS else "i", *indices)}}


def program(
    values: Sequence[Fields],
    calls: Sequence[tuple[str, Sequence[int]]] = (),
    inputs: Sequence[int] = (),
    outputs: Sequence[int] = (),
) -> bytes:
    """Return a program of calls ("aten::add.out", indices of its values), or of a backend's part.

    The last of the indices is what an operator returns, that before what it writes.
    """
    names = [dict.fromkeys(n for n, _ in calls if ("::" in n) == own) for own in (True, False)]
    instructions = []
    for name, arguments in calls:
        delegated = "::" not in name
        index = list(names[delegated]).index(name)
        call = {0: Scalar("i", index), 1: Vector("i", *arguments)}
        instructions.append({0: Scalar("B", 1 + delegated), 1: call})
    operators = [{0: n.partition(".")[0], 1: n.partition(".")[2]} for n in names[0]]
    plan = {
        0: "forward", 2: list(values), 3: Vector("i", *inputs), 4: Vector("i", *outputs),
        5: [{2: instructions}], 6: operators, 7: [{0: name} for name in names[1]],
    }  # fmt: skip
    return flatbuffer({1: [plan]}, b"ET12")


def lowered_node(
    handle: int | str, stack: str = "", target: str = "", makes: str = "", reads: Iterable[str] = ()
) -> dict[str, Any]:
    """Return a node of an ETRecord's program."""
    return {
        "target": target,
        "inputs": [{"arg": {"as_tensor": {"name": name}}} for name in reads],
        "outputs": [{"as_tensor": {"name": makes}}] if makes else [],
        "metadata": {"debug_handle": str(handle), **({"nn_module_stack": stack} if stack else {})},
    }


def write_record(
    file: Path,
    handles: dict[int, int | list[int]],
    nodes: Sequence[dict[str, Any]] = (),
    tensors: dict[str, tuple[int, Sequence[Any]]] | None = None,
    *,
    inputs: Sequence[str] = (),
    parameters: Sequence[str] = (),
) -> None:
    """Write an ETRecord of the method "forward"; `tensors` are dtype and sizes by name."""
    specs = [{"user_input": {"arg": {"as_tensor": {"name": name}}}} for name in inputs]
    specs += [{"parameter": {"arg": {"name": n}, "parameter_name": n}} for n in parameters]
    values = {
        name: {"dtype": dtype, "sizes": [{"as_int": size} for size in sizes]}
        for name, (dtype, sizes) in (tensors or {}).items()
    }
    graph = {"nodes": list(nodes), "tensor_values": values}
    module = {"graph_module": {"graph": graph, "signature": {"input_specs": specs}}}
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("debug_handle_map", json.dumps({"forward": handles}))
        archive.writestr("edge_dialect_exported_program/forward", json.dumps(module))


def hostile_programs() -> dict[str, Callable[[], bytes]]:
    """Return programs by what is wrong with them; each is refused at once, and in little memory."""
    relu, shared = "aten::relu.out", several(TENSORS, *([0] * 20_000))
    doubled = [several(TENSORS, *([max(0, n - 1)] * 2)) for n in range(1, 61)]
    chain = [several(INTS, n + 1) for n in range(3000)]
    return {
        "lists of lists with 2**60 leaves": lambda: program(
            [tensor(1), *doubled], [(relu, [60, 60])]
        ),
        "a list that holds itself": lambda: program([several(TENSORS, 0)], [(relu, [0, 0])]),
        "lists in 3,000 lists": lambda: program([*chain, number(1)], [(relu, [0, 0])]),
        "a long list named by many": lambda: program(
            [tensor(1), several(TENSORS, *([0] * 5000))], [(relu, [1, 1])] * 2000
        ),
        "a list that many values share": lambda: program(
            [tensor(1), *[shared] * 2000], [(relu, [n, n]) for n in range(1, 2001)]
        ),
        "sizes that many tensors share": lambda: program([tensor(*([1] * 60))] * 20_000),
        "65 dimensions": lambda: program([tensor(*([1] * 65))]),
        "2**93 elements": lambda: program([tensor(*([2**31 - 1] * 3))]),
        "sizes of -1": lambda: program([tensor(-1, 4)]),
        "stored in a type that is not known": lambda: program([tensor(2, dtype=99, stored=1)]),
    }


def hostile_records(file: Path) -> dict[str, Callable[[], None]]:
    """Return what writes ETRecords by what is wrong with them; each is refused at once."""
    many = range(200)
    deep = ";".join(f"k,p{n},C" for n in range(2000))
    size = {"w": (7, [4])}
    return {
        "instructions x handles x nodes": lambda: write_record(
            file, {n: [*many] for n in many}, [lowered_node(str([*many]))] * 20
        ),
        "a long stack for many": lambda: write_record(
            file, dict.fromkeys(many, 1), [lowered_node(1, deep)]
        ),
        "many parameters read by many": lambda: write_record(
            file, dict.fromkeys(many, 1), [lowered_node(1, "k,a,C", reads=["w"] * 2000)],
            size, parameters=["w"],
        ),
        "infinite sizes": lambda: write_record(
            file, {0: 1}, tensors={"w": (7, [float("inf")])}, parameters=["w"]
        ),
        "a parameter of 65 dimensions": lambda: write_record(
            file, {0: 1}, tensors={"w": (7, [1] * 65)}
        ),
        "a parameter of 2**93 elements": lambda: write_record(
            file, {0: 1}, tensors={"w": (7, [2**31] * 3)}, parameters=["w"]
        ),
        "an element type that is not known": lambda: write_record(
            file, {0: 1}, tensors={"w": (99, [4])}, parameters=["w"]
        ),
    }  # fmt: skip
