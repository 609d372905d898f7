"""A forward that does other work each time: the range of its FLOPs, and no rate."""

import itertools
import random
import types

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge import units
from torchgauge.measure.work import variation
from torchgauge.records.figures import figures

LAYER = 2 * 5 * 8 * 8  # FLOPs of a layer without bias on five rows


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(4))
        self.calls = 0

    def run(self, x, depth):
        for layer in self.layers[:depth]:
            x = layer(x)
        return x


class RandomDepth(Deep):
    def forward(self, x):
        return self.run(x, random.randint(1, 4))


class RandomLoop(Deep):
    def forward(self, x):
        for _ in range(int(torch.randint(1, 5, ()))):
            x = x @ self.layers[0].weight
        return x


class CountingDepth(Deep):
    def forward(self, x):
        self.calls += 1
        return self.run(x, 1 + self.calls % 4)


class CountingTensor(Deep):
    def __init__(self):
        super().__init__()
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.step += 1
        return self.run(x, 1 + int(self.step) % 4)


class Growing(Deep):
    """A list below an object that is an attribute."""

    def __init__(self):
        super().__init__()
        self.memory = types.SimpleNamespace(seen=[])

    def forward(self, x):
        self.memory.seen.append(0)
        return self.run(x, min(4, len(self.memory.seen)))


class EverySecond(Deep):
    """The call that is counted first is the short one."""

    refresh = False

    def forward(self, x):
        self.refresh, now = not self.refresh, self.refresh
        return self.run(x, 4 if now else 1)


OUTSIDE = itertools.cycle(range(1, 5))
TABLES = {}


class CountingOutside(Deep):
    """Nothing that belongs to the model tells the calls apart."""

    def forward(self, x):
        return self.run(x, next(OUTSIDE))


class CountingClass(Deep):
    depth = 0

    def forward(self, x):
        CountingClass.depth += 1
        return self.run(x, 1 + CountingClass.depth % 4)


class CachedOutside(Deep):
    def forward(self, x):
        if "table" not in TABLES:
            TABLES["table"] = torch.ones(8, 8) @ torch.ones(8, 8)
        return self.run(x, 4) @ TABLES["table"]


class OtherLayer(Deep):
    def forward(self, x):
        return random.choice(self.layers[:2])(x)


@pytest.fixture(autouse=True)
def seeded():
    state = random.getstate()
    random.seed(0)
    torch.manual_seed(0)
    yield
    random.setstate(state)


@pytest.mark.parametrize("model", [RandomDepth, RandomLoop])
@pytest.mark.parametrize("backward", [False, True])
def test_random_numbers_that_decide_on_the_work(model, backward):
    target, x = model(), torch.randn(5, 8)
    before = random.getstate(), torch.get_rng_state()
    cost = tg.count_cost(target, x, backward=backward)
    low, high = cost.flops_range
    assert low < high
    assert low <= cost.flops <= high
    if not backward:
        assert {low % LAYER, high % LAYER} == {0}
        assert LAYER <= low < high <= 4 * LAYER
    assert [w.id for w in cost.warnings].count("work-varies") == 1
    assert f"{units.count(low)} to {units.count(high)} FLOP" in cost.warnings[-1].message
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


@pytest.mark.parametrize(
    ("model", "backward"),
    [
        *((model, False) for model in (CountingDepth, CountingTensor, Growing, EverySecond)),
        *((model, False) for model in (CountingOutside, CountingClass)),
        # Buffers are written in training by any normalisation, and tell nothing there.
        *((model, True) for model in (CountingDepth, Growing, EverySecond)),
    ],
)
def test_what_earlier_calls_left_in_the_model_decides_on_the_work(model, backward):
    target, x = model(), torch.randn(5, 8)
    before = dict(vars(target))
    cost = tg.count_cost(target, x, backward=backward)
    low, high = cost.flops_range
    # One to four layers; in training their gradients too, but of the first layer's input.
    assert (low, high) == ((2 * LAYER, 11 * LAYER) if backward else (LAYER, 4 * LAYER))
    assert "work-varies" in {w.id for w in cost.warnings}
    assert vars(target) == before
    assert not target._buffers or not target.step


def test_state_that_decides_on_no_work_is_no_range():
    class Remembering(Deep):
        def forward(self, x):
            self.calls += 1
            self.last = self.run(x, 4)
            return self.last

    calls = []
    target = Remembering()
    target.layers[0].register_forward_hook(lambda *_: calls.append(target.calls))
    cost = tg.count_cost(target, torch.randn(5, 8))
    assert cost.flops_range is None
    assert target.calls == 0
    assert calls[:3] == [1, 1, 2]  # the first is counted; before the second one runs uncounted


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_is_outside_of_the_model_decides_on_the_work(device):
    cost = tg.count_cost(CountingOutside().to(device), torch.randn(5, 8, device=device))
    assert cost.flops_range == (LAYER, 4 * LAYER)


class LongOutside(nn.Module):
    """More than 6,000 operators, a hundred of them for each step of the counter."""

    def forward(self, x):
        for _ in range(6000 + 100 * next(OUTSIDE)):
            x = x.neg()
        return x


@pytest.mark.thorough
def test_a_long_call_is_counted_again(monkeypatch):
    monkeypatch.setattr(variation, "SECONDS", 0)
    cost = tg.count_cost(LongOutside(), torch.randn(1))
    assert cost.flops_range == (6100, 6400)
    assert "work-varies" in {warning.id for warning in cost.warnings}


def test_a_call_that_takes_too_long_is_counted_once_and_says_so(monkeypatch):
    monkeypatch.setattr(variation, "LONGEST", 0)
    cost = tg.count_cost(CountingOutside(), torch.randn(5, 8))
    assert cost.flops_range is None
    assert cost.warnings[-1].id == "one-call-counted"
    assert cost.warnings[-1].cause.startswith("Counting it took ")
    # A sign that calls differ is followed at any length.
    assert tg.count_cost(RandomDepth(), torch.randn(5, 8)).flops_range == (LAYER, 4 * LAYER)


def test_a_call_that_cannot_be_repeated_is_of_one_call():
    calls = itertools.count()

    class Once(Deep):
        def forward(self, x):
            if next(calls):
                raise RuntimeError("spent")
            return self.run(x, 4)

    cost = tg.count_cost(Once(), torch.randn(5, 8))
    assert (cost.flops, cost.flops_range) == (4 * LAYER, None)
    assert [warning.id for warning in cost.warnings] == ["one-call-counted"]
    assert "RuntimeError" in cost.warnings[0].cause


def test_calls_of_other_layers_with_as_many_flops_have_no_range():
    cost = tg.count_cost(OtherLayer(), torch.randn(5, 8))
    assert (cost.flops, cost.flops_range) == (LAYER, None)
    assert [layer.path for layer in cost.not_called] == ["layers.2", "layers.3"]
    assert cost.warnings[-1].id == "work-varies"
    assert "640 FLOP each, by other operators or layers" in cost.warnings[-1].message


@pytest.mark.thorough
def test_figures_of_calls_that_differ_are_unknown():
    model, x = CountingDepth(), torch.randn(5, 8)
    figures = tg.Profiler().profile_forward_pass(model, x, iterations=5)
    rates = ("flops", "batch_flops", "gflops_per_second", "memory_bandwidth_mbs")
    assert {figures[name] for name in (*rates, "computational_efficiency")} == {None}
    assert (figures["flops_at_least"], figures["bottleneck"]) == (LAYER, "unknown")
    assert "other work each time" in figures["bottleneck_evidence"][0]
    profiled = tg.ModelProfiler(model).profile(x, num_runs=5, warmup_runs=1)
    assert (profiled["model"]["flops"], profiled["model"]["flops_at_least"]) == (None, LAYER)
    assert "FLOP/B" not in str(tg.count_cost(model, x))


def test_a_module_that_another_draw_calls_is_not_left_alone():
    cost = tg.count_cost(RandomDepth(), torch.randn(5, 8))
    assert cost.flops_range == (LAYER, 4 * LAYER)
    assert cost.not_called == ()
    assert "modules-not-called" not in {w.id for w in cost.warnings}


class Dropout(Deep):
    def forward(self, x):
        return nn.functional.dropout(self.run(x, 4), training=True) + torch.randn(5, 8)


class Cached(Deep):
    table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.randn(8, 8) @ torch.randn(8, 8)
        return self.run(x, 4) @ self.table


class Lazy(Deep):
    def __init__(self):
        super().__init__()
        self.first = nn.LazyLinear(8)

    def forward(self, x):
        return self.run(self.first(x), 4)


@pytest.mark.parametrize("model", [Dropout, Cached, CachedOutside, Lazy])
@pytest.mark.parametrize("backward", [False, True])
def test_draws_and_first_calls_that_decide_on_no_work(model, backward):
    cost = tg.count_cost(model(), torch.randn(5, 8), backward=backward)
    assert cost.flops_range is None
    assert "work-varies" not in {w.id for w in cost.warnings}


def quick(model, **options):
    return tg.profile(model.eval(), torch.randn(5, 8), effort="quick", roofs=False, **options)


@pytest.mark.thorough
def test_a_profile_gives_no_rate():
    profile = quick(RandomDepth())
    assert profile.cost.flops_range == (LAYER, 4 * LAYER)
    assert profile.tree.varies
    assert (profile.roofline, profile.bottleneck, profile.utilization) == (None, None, None)
    assert all(row.flops is None for row in profile.tree.rows)
    text = str(profile)
    assert "one call; others 640 to 2,560" in text
    assert "FLOP/s" not in text
    known = {figure.name for figure in figures(profile) if figure.value is not None}
    assert known.isdisjoint({"flops", "macs", "traffic"})


@pytest.mark.thorough
def test_a_counter_decides_on_the_work():
    profile = quick(CountingDepth())
    assert profile.cost.flops_range == (LAYER, 4 * LAYER)
    assert profile.tree.varies
    assert "steps-vary" in {w.id for w in profile.all_warnings}
    assert (profile.roofline, profile.bottleneck) == (None, None)
    assert "FLOP/s" not in str(profile)
    memory = tg.measure_memory(CountingDepth(), torch.randn(5, 8))
    assert "steps-vary" in {w.id for w in memory.warnings}


def test_steady_work_has_its_rates():
    train = tg.Training(lambda out, _: out.sum(), lambda p: torch.optim.Adam(p))
    for profile in (quick(Dropout()), quick(Dropout(), train=train)):
        assert not profile.tree.varies
        assert profile.bottleneck is not None
        assert "steps-vary" not in {w.id for w in profile.all_warnings}
    memory = tg.measure_memory(Dropout(), torch.randn(5, 8), train=train)
    assert "steps-vary" not in {w.id for w in memory.warnings}


class SlightlyRandom(Deep):
    """Some rows more or fewer in the smallest part, as samplers of detection models take them."""

    def forward(self, x):
        rows = x.repeat(100, 1)
        return self.run(rows, 4)[: random.randint(1, 9)].sum()


@pytest.mark.thorough
def test_work_that_differs_by_less_than_a_hundredth_has_its_rates():
    profile = quick(SlightlyRandom())
    low, high = profile.cost.flops_range
    assert low < high < 1.01 * low
    assert profile.bottleneck is not None
    assert "FLOP/s" in str(profile)
    assert "work-varies" in {w.id for w in profile.all_warnings}
