"""What a forward changes below its attributes, in its classes and in the process is put back."""

from __future__ import annotations

import array
import dataclasses
import io
import itertools
import locale
import logging
import os
import random
import signal
import sys
import types
from collections import Counter, OrderedDict, UserDict, defaultdict, deque

import numpy as np
import pytest
import torch
from torch import nn

from torchgauge.targets import hygiene
from torchgauge.targets.inputs.inputs import Inputs


@dataclasses.dataclass
class Plain:
    number: int = 0
    items: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    items: list
    number: int = 0


class Bag(dict):
    """A dictionary with attributes, whose own methods must not be asked."""

    def __init__(self):
        super().__init__(a=1)
        self.calls = 0

    def items(self):
        raise AssertionError

    clear = __setitem__ = keys = values = update = items


def _fill_bag(bag):
    dict.__setitem__(bag, "b", 2)
    bag.calls += 1


def _freeze(value):
    object.__setattr__(value, "number", 1)
    value.items.append(1)


def _write(view):
    view[0] = 9


# What an attribute is, what a forward does to it, what must be the same before and after.
CASES = {
    "Counter": (Counter(a=1), lambda c: c.update(b=2), dict),
    "deque": (deque([1], maxlen=3), lambda d: d.extend([2, 3, 4]), list),
    "defaultdict": (defaultdict(list, a=[1]), lambda d: d["b"].append(d["a"].append(2)), str),
    "OrderedDict": (OrderedDict(a=1, b=2), lambda d: d.move_to_end("a"), list),
    "list in a dict": ({"a": [1]}, lambda d: d["a"].append(2), str),
    "set in a tuple": (({1},), lambda t: t[0].add(2), str),
    "bytearray": (bytearray(b"abc"), _write, bytes),
    "array": (array.array("d", [1.0]), lambda a: a.append(2.0), list),
    "NumPy": (np.zeros(3), _write, lambda a: a.tolist()),
    "NumPy objects": (np.array([[1], [2, 3]], dtype=object), lambda a: a[0].append(4), str),
    "dataclass": (Plain(), lambda p: (setattr(p, "number", 1), p.items.append(1)), str),
    "dataclass in a list": ([Plain()], lambda ps: ps[0].items.append(1), str),
    "slots": (Slotted([]), _freeze, str),
    "namespace": (types.SimpleNamespace(n=0), lambda s: vars(s).update(n=1, m=2), str),
    "UserDict": (UserDict(a=1), lambda d: d.update(b=2), str),
    "a dict's subclass": (Bag(), _fill_bag, lambda b: (dict.__len__(b), b.calls)),
    "plain tensor": (torch.zeros(3), lambda t: t.add_(1), lambda t: t.tolist()),
    "tensor in a list": ([torch.zeros(3)], lambda ts: ts[0].add_(1), str),
    "unregistered module": ([nn.BatchNorm1d(2)], lambda ms: ms[0](torch.ones(2, 2)),
                            lambda ms: str(ms[0].state_dict())),
    "random.Random": (random.Random(1), lambda r: r.random(), lambda r: r.getstate()),
    "torch.Generator": (torch.Generator(), lambda g: torch.rand(1, generator=g),
                        lambda g: g.get_state().tolist()),
    "NumPy's generator": (np.random.default_rng(1), lambda g: g.random(),
                          lambda g: str(g.bit_generator.state)),
    "NumPy's old one": (np.random.RandomState(1), lambda g: g.rand(),
                        lambda g: str(g.get_state())),
    "BytesIO": (io.BytesIO(b"ab"), lambda s: s.write(b"x"), lambda s: (s.getvalue(), s.tell())),
}  # fmt: skip


class Holder(nn.Module):
    def __init__(self, value, change):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.value, self.change = value, change

    def forward(self, x):
        self.change(self.value)
        return self.linear(x)


@pytest.mark.parametrize("guard", [hygiene.evaluation, hygiene.training])
@pytest.mark.parametrize("case", CASES)
def test_what_an_attribute_holds_is_put_back(case, guard):
    value, change, look = CASES[case]
    model = Holder(value, change)
    before = look(value)
    with guard(model) as kept:
        model(torch.ones(1, 2))
        assert look(value) != before, "the forward changes nothing: this test could not fail"
    assert look(value) == before
    assert model.value is value
    assert not kept.failed
    assert not kept.altered


class Wrapper:
    """A callable that is no module."""

    def __init__(self, value, change):
        self.value, self.change = value, change

    def __call__(self, *_, **__):
        self.change(self.value)


@pytest.mark.parametrize("case", ["deque", "dataclass", "NumPy", "plain tensor"])
@pytest.mark.parametrize("where", ["object", "method", "argument", "keyword"])
def test_what_a_callable_object_and_inputs_hold_is_put_back(case, where):
    value, change, look = CASES[case]
    wrapper, before = Wrapper(value, change), look(value)
    model = {"object": wrapper, "method": wrapper.__call__}.get(where, lambda *_, **__: wrapper())
    given = {"argument": Inputs((value,)), "keyword": Inputs(kwargs={"x": [value]})}
    inputs = given.get(where, Inputs())
    with hygiene.evaluation(model, inputs):
        model(*inputs.args, **inputs.kwargs)
        assert look(value) != before
    assert look(value) == before


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (itertools.count(), next),
        (iter([1, 2]), next),
        ((n for n in (1, 2)), next),
        (np.zeros(hygiene.state.COPIED // 8 + 1), lambda a: a.fill(1)),
        (bytearray(hygiene.state.COPIED + 1), lambda b: b.__setitem__(slice(None), b"1" * len(b))),
    ],
)
def test_what_cannot_be_put_back_is_named(value, change):
    model = nn.Sequential(Holder({"a": value}, lambda d: change(d["a"])))
    with hygiene.evaluation(model) as kept:
        pass
    assert not kept.warnings("latency")
    with hygiene.evaluation(model) as kept:
        model(torch.ones(1, 2))
    assert kept.altered == ["0.value"]
    assert [one.id for one in kept.warnings("latency")] == ["model-changed"]


def test_a_forward_that_changes_its_class_is_put_back_with_all_it_holds():
    class Other(Holder):
        pass

    def change(value):
        value.append(1)
        model.__class__ = Other
        model.more = 1

    model = Holder([], change)
    with hygiene.evaluation(model):
        model(torch.ones(1, 2))
        assert type(model) is Other
    assert type(model) is Holder
    assert model.value == []
    assert not hasattr(model, "more")


def test_what_the_models_class_holds_is_put_back():
    class Counting(nn.Module):
        calls = 0
        seen: list = []  # noqa: RUF012

        def forward(self, x):
            type(self).calls += 1
            self.seen.append(x)
            Counting.cache = x
            return x

    model = nn.Sequential(Counting())
    with hygiene.evaluation(model):
        model(torch.ones(1))
        assert (Counting.calls, len(Counting.seen)) == (1, 1)
    assert (Counting.calls, len(Counting.seen)) == (0, 0)
    assert not hasattr(Counting, "cache")


def test_resources_and_closures_are_left_alone():
    collected = []
    model = nn.Linear(2, 2)
    model.register_forward_hook(lambda *_: collected.append(1))
    model.log = logging.getLogger("torchgauge.test")
    with hygiene.evaluation(model):
        model(torch.ones(1, 2))
    assert collected == [1]  # a user's hook collects for its user


PROCESS = {
    "working directory": (lambda: os.chdir("/"), os.getcwd),
    "locale": (
        lambda: locale.setlocale(locale.LC_ALL, "C"),
        lambda: locale.setlocale(locale.LC_ALL),
    ),
    "signal": (
        lambda: signal.signal(signal.SIGUSR1, print),
        lambda: signal.getsignal(signal.SIGUSR1),
    ),
    "root logger": (lambda: logging.basicConfig(level=5, force=True),
                    lambda: (logging.root.level, list(logging.root.handlers))),
    "logger": (
        lambda: logging.getLogger("a.b").setLevel(7),
        lambda: logging.getLogger("a.b").level,
    ),
    "logging": (lambda: logging.disable(50), lambda: logging.root.manager.disable),
    "path": (lambda: sys.path.insert(0, "/x"), lambda: list(sys.path)),
    "NumPy's printing": (lambda: np.set_printoptions(precision=2), np.get_printoptions),
    "torch's printing": (lambda: torch.set_printoptions(precision=2),
                         lambda: dict(vars(torch._tensor_str.PRINT_OPTS))),
}  # fmt: skip


@pytest.mark.parametrize("case", PROCESS)
def test_the_process_is_put_back(case):
    change, look = PROCESS[case]
    if case == "locale":
        locale.setlocale(locale.LC_ALL, "C.UTF-8")
    logging.getLogger("a.b").setLevel(0)
    before = look()
    with hygiene.evaluation(nn.Identity()) as kept:
        change()
        assert look() != before
    assert look() == before
    assert not kept.failed
