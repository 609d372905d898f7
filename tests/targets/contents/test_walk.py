"""What a value holds, found and replaced without its classes' own methods."""

from __future__ import annotations

import collections
import dataclasses
import threading
import types
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from transformers import BatchEncoding, DynamicCache

from torchgauge import InputError
from torchgauge.targets.contents.walk import tensors_in
from torchgauge.targets.inputs.content import batch_of
from torchgauge.targets.inputs.inputs import Inputs

ROWS = torch.ones(100, 64)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    rows: torch.Tensor


class Own:
    def __init__(self):
        self.rows = ROWS
        self.me = self
        self.parent = weakref.ref(self)
        self.lock = threading.Lock()
        self.python = types


class Slots:
    __slots__ = ("never_set", "rows")

    def __init__(self):
        self.rows = ROWS


class Hostile:
    """Raises whatever is asked of it."""

    __hash__ = None

    def __init__(self):
        self.rows = ROWS

    def __len__(self):
        raise RuntimeError

    __iter__ = __bool__ = __deepcopy__ = __reduce_ex__ = __len__

    def __getattr__(self, name):
        raise RuntimeError(name)

    @property
    def length(self):
        raise RuntimeError


class HostileDict(dict):
    def __iter__(self):
        raise RuntimeError

    items = values = keys = __len__ = __iter__


Pair = collections.namedtuple("Pair", "rows other")


def circle():
    values = {"rows": ROWS}
    values["again"] = [values]
    return values


def cache():
    value = DynamicCache()
    for layer in range(2):
        value.update(torch.ones(2, 4, 5, 8), torch.ones(2, 4, 5, 8), layer)
    return value


@pytest.mark.parametrize(
    ("make", "names", "batch"),
    [
        (lambda: Frozen(ROWS), ["0.rows"], 100),
        (Own, ["0.rows"], 100),
        (Slots, ["0.rows"], 100),
        (Hostile, ["0.rows"], 100),
        (lambda: HostileDict(rows=ROWS), ["0.rows"], 100),
        (lambda: Pair(ROWS, torch.ones(100)), ["0.rows", "0.other"], 100),
        (lambda: types.SimpleNamespace(rows=ROWS), ["0.rows"], 100),
        (lambda: BatchEncoding({"input_ids": torch.ones(2, 7)}), ["0.input_ids"], 2),
        (circle, ["0.rows"], 100),
        (lambda: (Frozen(ROWS), {ROWS}), ["0.rows", "1.0"], 100),
        (lambda: torch.distributions.Normal(ROWS, ROWS), ["0.loc", "0.scale"], 100),
        # An object's modules are no samples.
        (lambda: types.SimpleNamespace(layer=nn.Linear(4, 3), rows=ROWS), None, 100),
        (lambda: {"ids": torch.ones(3, 1), "cache": cache()}, None, 3),  # the nearest
        (cache, None, 2),
        (lambda: pack_sequence([torch.ones(3, 4), torch.ones(2, 4)]), None, 2),
    ],
)
def test_tensors_in_objects_are_named_counted_and_moved(make, names, batch):
    value = make()
    inputs = Inputs(value) if type(value) is tuple else Inputs((value,))
    before = list(inputs.tensors())
    assert names is None or [name for name, _ in before] == names
    assert batch_of(inputs) == batch
    moved = inputs.map(lambda tensor: tensor.to("meta"))
    assert [type(value) for value in moved.args] == [type(value) for value in inputs.args]
    devices = {name: tensor.device.type for name, tensor in moved.tensors()}
    devices.pop("0.batch_sizes", None)  # of a packed sequence: torch wants it on the CPU
    assert set(devices.values()) == {"meta"}
    assert {tensor.device.type for _, tensor in inputs.tensors()} == {"cpu"}
    after = [tensor for _, tensor in inputs.tensors()]
    assert all(tensor is same for (_, tensor), same in zip(before, after, strict=True))
    assert inputs.map(lambda tensor: tensor).args[0] is inputs.args[0]


def test_a_moved_object_keeps_its_shape_as_a_graph():
    moved = Inputs((Own(), ROWS)).map(lambda tensor: tensor.double())
    copy, rows = moved.args
    assert copy.me is copy
    assert copy.parent() is copy
    assert copy.rows is rows  # shared as before
    assert copy.python is types


def test_a_module_among_the_inputs_is_cast_as_a_module():
    moved = Inputs((types.SimpleNamespace(layer=nn.Linear(4, 3)),)).map(torch.Tensor.double)
    layer = moved.args[0].layer
    assert isinstance(layer.weight, nn.Parameter)
    assert layer(torch.ones(2, 4, dtype=torch.float64)).shape == (2, 3)


def test_what_cannot_be_read_or_copied_is_named():
    unread = Inputs((iter([ROWS]), Frozen(ROWS)), {"rows": (row for row in ROWS)}).unread()
    assert [entry.name for entry in unread] == ["0", "rows"]
    with pytest.raises(InputError, match="mappingproxy holds tensors") as caught:
        Inputs((types.MappingProxyType({"rows": ROWS}),)).map(torch.Tensor.double)
    assert caught.value.id == "inputs-fixed"


def test_tensors_come_in_order_and_modules_are_not_entered():
    first, second = torch.ones(1), torch.ones(2)
    value = [first, {"second": second, "again": first}, nn.Linear(2, 2)]
    assert [len(tensor) for tensor in tensors_in(value)] == [1, 2]
    assert [len(tensor) for tensor in tensors_in(value, repeated=True)] == [1, 2, 1]
