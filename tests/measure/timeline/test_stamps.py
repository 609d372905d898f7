"""Stamps of module calls: each once, nested, on its thread; and the process as it was."""

import contextlib
import gc
import itertools
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torchgauge.analyze.timeline.call_tree import CallTree, place
from torchgauge.measure.recording.scope import observed
from torchgauge.measure.timeline.stamps import Stamps


def stamped(model, *args, run=None):
    """Return the stamps' calls by path, with a clock that counts."""
    ticks = itertools.count()
    stamps = Stamps(model, now=lambda: next(ticks))
    with stamps.watching():
        (run or model)(*args)
    calls = stamps.take_calls()
    tree = CallTree(stamps.modules.table, stamps.modules.name)
    return [
        (tree.layers[one.layer].path, call)
        for one, call in zip(place(calls, tree), calls, strict=True)
    ]


def spans(found):
    return [(path, call.start, call.end) for path, call in found]


def test_each_call_is_stamped_when_it_begins_and_ends():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    assert spans(stamped(model, torch.ones(1, 2))) == [("0", 1, 2), ("1", 3, 4), ("", 0, 5)]


def test_a_call_that_raises_is_stamped_and_the_error_passes():
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    class Catches(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Raises()

        def forward(self, x):
            with contextlib.suppress(ValueError):
                self.inner(x)

    assert spans(stamped(Catches(), 1)) == [("inner", 1, 2), ("", 0, 3)]
    stamps = Stamps(Raises())
    with pytest.raises(ValueError, match="no"), stamps.watching():
        Raises()(1)
    assert len(stamps.take_calls()) == 1


class Overrides(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def __call__(self, x):
        return super().__call__(x)

    def forward(self, x):
        return self.layer(x)


def test_a_class_that_overrides_call_is_stamped_once_from_outside():
    assert spans(stamped(Overrides(), torch.ones(1, 2))) == [("layer", 1, 2), ("", 0, 3)]


def test_of_two_classes_that_override_call_the_outer_one_is_stamped():
    class Twice(Overrides):
        def __call__(self, x):
            return super().__call__(x)

    model = nn.Sequential(Twice(), Overrides())
    found = [path for path, _ in stamped(model, torch.ones(1, 2))]
    assert found == ["0.layer", "0", "1.layer", "1", ""]


def test_an_override_that_calls_itself_again_is_another_call():
    class Again(Overrides):
        deep = False

        def forward(self, x):
            if self.deep:
                return self.layer(x)
            self.deep = True
            return self(x)

    assert [path for path, _ in stamped(Again(), torch.ones(1, 2))] == ["layer", "", ""]


def test_an_override_without_super_is_stamped():
    class Direct(nn.Module):
        def __call__(self, x):
            return x + 1

    model = nn.Sequential(Direct(), nn.ReLU())
    assert [path for path, _ in stamped(model, torch.ones(1))] == ["0", "1", ""]


def test_threads_keep_apart():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))

    def run(x):
        threads = [threading.Thread(target=model[n], args=(x,)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = stamped(model, torch.ones(1, 2), run=run)
    assert sorted(path for path, _ in found) == ["0", "1"]
    assert len({call.thread for _, call in found} - {threading.get_ident()}) in (1, 2)


def test_a_module_outside_the_target_is_named_by_its_class():
    outside = [nn.Linear(2, 2), nn.Linear(2, 2)]

    class Borrows(nn.Module):
        def forward(self, x):
            return outside[1](outside[0](x))

    found = [path for path, _ in stamped(Borrows(), torch.ones(1, 2))]
    assert found == ["Linear", "Linear#2", ""]


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_checkpoint_runs_again_is_where_it_ran_before(reentrant):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))

    def run(x):
        checkpoint(model[0], x, use_reentrant=reentrant).sum().backward()

    found = stamped(model, torch.ones(1, 2, requires_grad=True), run=run)
    assert [(path, call.recomputed) for path, call in found] == [("0", False), ("0", True)]


def test_a_quote_in_a_name_is_kept():
    model = nn.Module()
    model.add_module('a"b', nn.Linear(2, 2))
    model.forward = lambda x: getattr(model, 'a"b')(x)
    assert [path for path, _ in stamped(model, torch.ones(1, 2))] == ['a"b', ""]


def test_overlapping_scopes_see_the_same_calls_and_leave_nothing_behind():
    class Counts:
        calls = 0

        def enter(self, module, _arguments):
            self.calls += 1

        def leave(self, token, _outputs):
            pass

    before = nn.Module.__call__
    model, counts = nn.Sequential(nn.Linear(2, 2)), Counts()
    first, second = Stamps(model), Stamps(model)
    outer = first.watching()
    outer.__enter__()
    with second.watching():
        with observed(counts, model.modules()):
            model(torch.ones(1, 2))
        outer.__exit__(None, None, None)  # not the order they began in
        model(torch.ones(1, 2))
    assert (len(first.take_calls()), len(second.take_calls()), counts.calls) == (2, 4, 2)
    assert nn.Module.__call__ is before
    assert "__call__" not in vars(nn.Linear)


def test_an_overriding_class_gets_its_own_call_back():
    before = Overrides.__call__
    stamped(Overrides(), torch.ones(1, 2))
    assert Overrides.__call__ is before


def test_keeps_no_objects_that_make_python_collect_garbage():
    model = nn.Linear(2, 2)
    stamps = Stamps(model)
    gc.disable()
    try:
        with stamps.watching():
            model(torch.ones(1, 2))
            before = gc.get_count()[0]
            for _ in range(200):
                model(torch.ones(1, 2))
            grown = gc.get_count()[0] - before
    finally:
        gc.enable()
    assert grown < 20
    assert len(stamps.take_calls()) == 201
