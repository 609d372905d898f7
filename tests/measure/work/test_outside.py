"""Work that no torch operator shows: counted where NumPy shows it, else "at least" and named."""

from __future__ import annotations

import copy
import ctypes
import importlib.util
import io
import json
import math
import pickle
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import torch
from torch import nn

import torchgauge as tg
from torchgauge.cli.main import main
from torchgauge.measure.work import outside
from torchgauge.measure.work.internals import TORCH_FOLDER
from torchgauge.records import rendering

SIDE = 8
PRODUCT = 2 * SIDE**3
ELEMENTS = SIDE**2
WEIGHT = np.ones((SIDE, SIDE), np.float32)


class Then(nn.Module):
    """A layer, and a function of what it returns."""

    def __init__(self, function):
        super().__init__()
        self.layer = nn.Linear(SIDE, SIDE, bias=False)
        self.weight = WEIGHT.copy()
        self.function = function

    def forward(self, x):
        return self.function(self, self.layer(x))


def counted(function, **options):
    return tg.count_cost(Then(function), torch.ones(SIDE, SIDE), **options)


def read(address):
    return ctypes.string_at(address, 4)


def squared_with(numpy):
    return lambda model, y: torch.from_numpy(numpy(y) @ numpy(y))


def checked(model, y):
    address = y.data_ptr()
    if address == 0 or address % 4:
        raise ValueError
    return y if read(address) else None


def in_thread(model, y):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return torch.from_numpy(pool.submit(lambda: np.tanh(y.numpy())).result())


def moved_by_queue(model, y):
    queue = torch.multiprocessing.get_context("spawn").Queue()
    queue.put(y.clone())
    return queue.get(timeout=60)


FOLLOWED = {
    "numpy": (squared_with(lambda y: y.numpy()), PRODUCT),
    "asarray": (squared_with(lambda y: np.asarray(y)), PRODUCT),
    "weights": (lambda model, y: torch.from_numpy(y.numpy() @ model.weight), PRODUCT),
    "globals": (lambda model, y: torch.as_tensor(y.numpy() @ WEIGHT), PRODUCT),
    "new arrays": (
        lambda model, y: y + torch.from_numpy(np.sqrt(np.arange(float(SIDE)))),
        SIDE + ELEMENTS,
    ),
    "ufuncs of others": (lambda model, y: torch.from_numpy(scipy.special.erf(y.numpy())), ELEMENTS),
    "a number of NumPy's": (lambda model, y: y * round(y.numpy().max(), 2), 2 * ELEMENTS),
    "in place": (lambda model, y: torch.from_numpy(np.add(y.numpy(), 1, out=y.numpy())), ELEMENTS),
}
NO_WORK = {
    "nothing": lambda model, y: y,
    "integers": lambda model, y: y[torch.tensor([1, 2]).tolist()],
    "shapes": lambda model, y: y.view(torch.tensor(y.shape).tolist()),
    "an index": lambda model, y: y[torch.arange(2).numpy()],
    "copies": lambda model, y: copy.copy(copy.deepcopy(y)),
    "a file": lambda model, y: torch.save(y, io.BytesIO()) or y,
    "back at once": lambda model, y: torch.from_dlpack(y),
    "rows": lambda model, y: torch.stack(list(y)),
    "addresses that are compared": lambda model, y: (
        y if y.data_ptr() in {1, 2} or y.data_ptr() == y.untyped_storage().data_ptr() else None
    ),
}
UNKNOWN = {
    "pointer": (lambda model, y: y if read(y.data_ptr()) else None, "Tensor.data_ptr"),
    "pointer that was checked": (checked, "Tensor.data_ptr"),
    "pointer of the storage": (
        lambda model, y: y if read(y.untyped_storage().data_ptr()) else None,
        "UntypedStorage.data_ptr",
    ),
    "pointer of an array": (
        lambda model, y: y if read(y.numpy().ctypes.data) else None,
        "ndarray.ctypes",
    ),
    "list": (lambda model, y: y.new_tensor([math.exp(v) for v in y[0].tolist()]), "Tensor.tolist"),
    "list of bytes": (lambda model, y: y + y.untyped_storage().tolist()[0], "Storage.tolist"),
    "a universal function of the user's": (
        lambda model, y: torch.from_numpy(
            np.frompyfunc(math.exp, 1, 1)(y.numpy()).astype(np.float32)
        ),
        "exp (vectorized)",
    ),
    "function of NumPy's": (lambda model, y: np.tanh(y), "Tensor.__array__"),
    "function without a rule": (
        lambda model, y: torch.from_numpy(np.linalg.inv(y.numpy() + np.eye(SIDE))),
        "numpy.linalg.inv",
    ),
    "DLPack": (lambda model, y: torch.from_numpy(np.from_dlpack(y)), "Tensor.__dlpack__"),
    "capsule": (
        lambda model, y: torch.from_dlpack(torch.utils.dlpack.to_dlpack(y)),
        "dlpack.to_dlpack",
    ),
    "SciPy": (lambda model, y: torch.from_numpy(scipy.linalg.expm(y.numpy())), "scipy"),
    "number of SciPy's": (lambda model, y: y * float(scipy.linalg.norm(y.numpy())), "scipy"),
    "array of unknown origin": (
        lambda model, y: y + torch.from_numpy(np.random.default_rng(0).random((SIDE, SIDE))),
        "unknown origin",
    ),
    "array that C takes": (
        lambda model, y: y if memoryview(y.numpy()) is not None else None,
        "Tensor.numpy",
    ),
    "bytes": (
        lambda model, y: torch.frombuffer(bytearray(4 * ELEMENTS), dtype=torch.float32),
        "torch.frombuffer",
    ),
    "pickle": (lambda model, y: pickle.loads(pickle.dumps(y)), "Tensor.__reduce_ex__"),
    "thread": (in_thread, "unknown origin"),
    "other process": (moved_by_queue, "UntypedStorage._share_f"),
}


EXTENSION = """
#include <Python.h>
const char *linked_to = "libtorch_python.so";
static PyObject *same(PyObject *module, PyObject *value) { Py_INCREF(value); return value; }
static PyMethodDef functions[] = {{"same", same, METH_O, 0}, {0}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "takes_tensors", 0, -1, functions};
PyMODINIT_FUNC PyInit_takes_tensors(void) { return PyModule_Create(&definition); }
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory):
    """A module in C that takes a tensor without asking it for anything, in no list of modules."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no compiler of C")
    folder = tmp_path_factory.mktemp("extension")
    source, library = folder / "source.c", folder / "takes_tensors.so"
    source.write_text(EXTENSION)
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run([compiler, "-shared", "-fPIC", include, source, "-o", library], check=True)
    spec = importlib.util.spec_from_file_location("takes_tensors", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.thorough
def test_torchs_own_libraries_are_none_where_torch_is_behind_a_link(tmp_path):
    (tmp_path / "torch").symlink_to(TORCH_FOLDER, target_is_directory=True)
    library, *_ = Path(TORCH_FOLDER).glob("lib/libtorch_python.*")
    for folder in (Path(TORCH_FOLDER), tmp_path / "torch", Path(TORCH_FOLDER).resolve()):
        assert not outside._takes_tensors(str(folder / "lib" / library.name))


@pytest.mark.thorough
def test_a_call_of_an_extension_is_at_least_and_named(extension):
    before = sys.getprofile()
    function = lambda model, y: extension.same(y)  # noqa: E731
    cost = counted(function)
    assert (cost.flops, list(cost.unknown)) == (PRODUCT, ["outside of torch: takes_tensors.same"])
    assert "takes_tensors.same at" in cost.warnings[0].cause
    assert counted(lambda model, y: y).unknown == {}  # it is loaded, and not called
    assert sys.getprofile() is before
    profile = tg.profile(Then(function), torch.ones(SIDE, SIDE), effort="quick", roofs=False)
    assert profile.cost.at_least


def test_no_extension_gets_tensors_without_values(extension):
    target = Then(lambda model, y: extension.same(y)).to("meta")
    cost = tg.count_cost(target, torch.ones(SIDE, SIDE, device="meta"))
    assert (cost.flops, cost.counted_on, cost.at_least) == (PRODUCT, "cpu", True)


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_numpys_dispatch_shows_is_counted(name):
    function, flops = FOLLOWED[name]
    cost = counted(function)
    assert (cost.flops, cost.unknown, cost.coverage) == (PRODUCT + flops, {}, 1.0)


@pytest.mark.parametrize("name", NO_WORK)
def test_what_is_no_work_is_no_alarm(name):
    cost = counted(NO_WORK[name])
    assert (cost.flops, cost.unknown, cost.warnings) == (PRODUCT, {}, ())


@pytest.mark.parametrize("name", UNKNOWN)
def test_the_rest_is_at_least_and_named(name):
    function, door = UNKNOWN[name]
    cost = counted(function)
    assert cost.at_least
    assert cost.flops >= PRODUCT
    assert any(door in operator for operator in cost.unknown)
    assert [w.id for w in cost.warnings] == ["work-outside-torch"]
    assert door in cost.warnings[0].cause
    root, layer = cost.tree, cost.tree.children[0]
    assert root.own.at_least
    assert not layer.work.at_least


class Library:
    """Answers to any name with a function, as those that load a library when it is used."""

    __slots__ = ()

    def __getattr__(self, name):
        return getattr


LIBRARY = Library()


def test_objects_that_answer_to_any_name_are_left_alone():
    def function(model, y):
        assert LIBRARY.some_function is getattr
        return torch.from_numpy(y.numpy() @ WEIGHT)

    target = Then(function)
    target.library = LIBRARY
    assert tg.count_cost(target, torch.ones(SIDE, SIDE)).matmul_flops == 2 * PRODUCT


def test_tensors_have_their_own_methods_afterwards():
    before = dict(vars(torch.Tensor)), dict(vars(torch.UntypedStorage)), dict(vars(np)), vars(torch)
    counted(UNKNOWN["pointer"][0])
    with pytest.raises(tg.TorchgaugeError):
        counted(lambda model, y: y.numpy().no_such_method())
    after = dict(vars(torch.Tensor)), dict(vars(torch.UntypedStorage)), dict(vars(np)), vars(torch)
    assert before == after


def test_the_layer_and_the_line_are_named():
    cost = tg.count_cost(nn.Sequential(nn.Identity(), Then(checked)), torch.ones(SIDE, SIDE))
    (warning,) = cost.warnings
    assert "work of 1 is counted" in warning.message
    assert f"{__file__}:{checked.__code__.co_firstlineno + 1}" in warning.cause


def test_a_backward_pass():
    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return torch.from_numpy(gradient.numpy() @ WEIGHT)

    cost = counted(lambda model, y: Custom.apply(y), backward=True)
    assert cost.matmul_flops == 3 * PRODUCT  # forward, the weight's gradient, and NumPy's
    assert [row.phase for row in cost.rows if row.operator == "numpy.matmul"] == ["backward"]


def test_a_custom_operator_is_known_or_unknown_as_a_whole():
    @torch.library.custom_op("outside::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)

    assert counted(lambda model, y: doubled(y)).unknown == {"outside::doubled": 1}
    tg.flop_formula("outside::doubled")(lambda x, *, outputs: tg.Work(vector=x.shape[0]))
    cost = counted(lambda model, y: doubled(y))
    assert (cost.flops, cost.warnings) == (PRODUCT + SIDE, ())


def test_modules_of_numpy_alone():
    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = WEIGHT.copy()

        def forward(self, x):
            return np.tanh(x @ self.weight)

    given = np.ones((SIDE, SIDE), np.float32)
    assert tg.count_cost(Alone(), given).flops == PRODUCT + ELEMENTS
    assert tg.count_cost(Alone(), given.tolist()).totals["flops"] is None  # none is followed


@pytest.mark.parametrize("returned", [1.5, b"answer", torch.ones(2), [WEIGHT]])
def test_a_module_that_makes_something_of_nothing_has_unknown_work(returned):
    cost = tg.count_cost(Then(lambda model, y: None), torch.ones(SIDE, SIDE))
    assert not cost.at_least

    class Remote(nn.Module):
        def forward(self, x):
            return returned

    assert tg.count_cost(Remote(), torch.ones(2)).totals["flops"] is None


def test_a_model_that_takes_plain_arrays_alone_is_counted():
    def exact(model, y):
        array = y.numpy()
        if type(array) is not np.ndarray:
            raise TypeError("only arrays of NumPy's own class")
        return torch.from_numpy(array)

    cost = counted(exact)
    assert cost.flops == PRODUCT
    assert "outside of torch: Tensor.numpy" in cost.unknown


def test_an_address_is_a_number():
    def addressed(model, y):
        address = y.data_ptr()
        assert isinstance(address, int)
        assert address == y.untyped_storage().data_ptr()
        assert address != 0
        assert {address: 1}[int(address)] == 1
        return y

    assert counted(addressed).flops == PRODUCT


@pytest.fixture
def pointer_file(tmp_path, monkeypatch):
    tmp_path.joinpath("pointer.py").write_text(
        "import ctypes, torch\n"
        "from torch import nn\n"
        "class Copies(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(8, 8, bias=False)\n"
        "    def forward(self, x):\n"
        "        y, out = self.layer(x), torch.empty(8, 8)\n"
        "        ctypes.memmove(out.data_ptr(), y.data_ptr(), 256)\n"
        "        return out\n"
        "def copies():\n"
        "    return Copies(), torch.ones(8, 8)\n"
    )
    monkeypatch.chdir(tmp_path)


@pytest.mark.thorough
def test_a_kernel_that_takes_pointers_is_counted_on_values(pointer_file, capsys):
    assert main(["count", "pointer.py:copies", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["cost"]["counted_on"] == "cpu"
    assert record["totals"]["flops"] == PRODUCT
    assert record["totals"]["unknown_calls"] == 2
    ids = [warning["id"] for warning in record["cost"]["warnings"]]
    assert ids == ["work-outside-torch", "counted-on-cpu"]


def test_without_values_the_address_is_refused(pointer_file, capsys):
    assert main(["count", "pointer.py:copies", "--device", "meta"]) == 1
    assert "[address-of-meta]" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_profile_says_so_by_layer():
    profile = tg.profile(Then(checked), torch.ones(SIDE, SIDE), warmup=0, iterations=2, processes=1)
    assert profile.cost.unknown == {"outside of torch: Tensor.data_ptr": 1}
    text = rendering.text(profile, "console")
    assert f"at least {PRODUCT:,}" in text
    (root, layer) = profile.table("layers").rows()
    assert root["flops"] == layer["flops"] == PRODUCT
