"""Where a change of all layers breaks the output, those that hold are a candidate of their own."""

import dataclasses
import functools

import msgspec
import pytest
import torch
from tests.support.advice_processes import world
from tests.support.advice_worlds import World, candidate
from tests.support.advice_worlds import facts as made
from torch import nn

from torchgauge.advice.budget import GRACE, GRACE_SHARE, Budget
from torchgauge.advice.candidate import ByLayer
from torchgauge.advice.candidates.every import ALL_CANDIDATES
from torchgauge.advice.experiment import Experiment
from torchgauge.advice.world import Block
from torchgauge.measure.advice.check import (
    MOST_GROUPS,
    CheckResult,
    LayerChoice,
    LayerChoiceSource,
    chosen,
    layer_groups,
)
from torchgauge.measure.advice.outputs import DIFFERS
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.progress import Silent
from torchgauge.records.advice import LeftOut, OutputCheck, Trial
from torchgauge.report.content import advice as words
from torchgauge.targets.builds.source import Source
from torchgauge.targets.changed_target import changed

KNOWN = {one.id: one for one in ALL_CANDIDATES}
LINEAR = made(layers={"Linear": 3})
BROKEN = OutputCheck(passed=False, bound=0.1, max_relative=0.5, reason=DIFFERS)
SENSITIVE = LeftOut(paths=("head.fc",), output=BROKEN, tested_alone=True)


class Uneven(nn.Module):
    """The second layer has a weight of 1e5 for an input that is 0: in int8 all others become 0."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.wide, self.odd, self.last = nn.Linear(16, 16), nn.Linear(17, 16), nn.Linear(16, 16)
        nn.init.constant_(self.odd.weight[:, 16].detach(), 1e5)

    def forward(self, x):
        zero = torch.zeros(len(x), 1)
        return self.last(self.odd(torch.cat([self.wide(x), zero], 1)))


def inputs():
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(1))


def choice(model, x, by_layer, known, *, tolerance):
    """Choose layers in this process."""
    source = Source.of_object(model, x)
    fields = {one.name: getattr(source, one.name) for one in dataclasses.fields(source)}
    lines = functools.partial(by_layer.code, known)
    source = LayerChoiceSource(**fields, tolerance=tolerance, kinds=by_layer.kinds, lines=lines)
    return chosen(source, source.open(), LatencyOptions())


def experiment(made_world, *candidates, budget=None):
    made_world.budget = budget = Budget(budget, made_world.now)
    found = Experiment(made_world, candidates, Silent(), budget=budget).run()
    return list(found.trials)


def breaking(**options):
    """Return a world in which int8 of all layers is fast and breaks the output."""
    options = {"layers": {"Linear": 3}, **options}
    checks = {"int8-dynamic": CheckResult(BROKEN)}
    return World({"int8-dynamic-layers": 1.3, "fast": 1.2}, checks=checks, **options)


def test_one_sensitive_layer_is_left_out_of_int8_and_the_others_hold():
    model, x = Uneven(), inputs()
    found = choice(model, x, KNOWN["int8-dynamic"].by_layer, LINEAR, tolerance=0.1)
    assert found.paths == ("wide", "last")
    (odd,) = found.left_out
    assert (odd.paths, odd.tested_alone, odd.output.passed) == (("odd",), True, False)
    # Without its weights the layer gives its bias alone.
    with torch.no_grad():
        before = model(x)
        after = model.last(model.odd.bias).expand_as(before)
    error = (after - before).abs().max() / before.abs().max()
    assert odd.output.max_relative == pytest.approx(float(error), rel=0.05)
    sizes = {"wide": 16 * 17, "odd": 16 * 18, "last": 16 * 17}
    assert found.share == pytest.approx(2 * sizes["wide"] / sum(sizes.values()))


def test_the_code_shown_changes_these_layers_and_no_others():
    paths = ["wide", "last"]
    int8 = KNOWN["int8-dynamic"].by_layer.code(LINEAR, paths)
    bf16 = KNOWN["bf16-cast"].by_layer.code(LINEAR, paths)
    x, outputs = inputs(), {}
    for name, code in (("int8", int8), ("bf16", bf16)):
        placement = changed(Source.of_object(Uneven(), x).open(), [code])
        with torch.no_grad():
            outputs[name] = placement.model(x)
        assert outputs[name].dtype is torch.float32
        assert type(placement.model.odd) is nn.Linear
        assert placement.model.odd.weight.dtype is torch.float32
    by_hand = Uneven()
    with torch.no_grad():
        y = by_hand.odd(torch.cat([_bf16(by_hand.wide, x), torch.zeros(4, 1)], 1))
        assert torch.equal(outputs["bf16"], _bf16(by_hand.last, y))
        parts = nn.ModuleList([by_hand.wide, by_hand.last])
        parts = torch.ao.quantization.quantize_dynamic(parts, {nn.Linear}, dtype=torch.qint8)
        y = by_hand.odd(torch.cat([parts[0](x), torch.zeros(4, 1)], 1))
        assert torch.equal(outputs["int8"], parts[1](y))


def _bf16(layer, x):
    weight, bias = layer.weight.bfloat16(), layer.bias.bfloat16()
    return nn.functional.linear(x.bfloat16(), weight, bias).float()


@pytest.mark.parametrize("id", ["int8-dynamic", "bf16-cast"])
def test_a_path_names_what_is_below_it_and_not_what_begins_alike(id):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4)) for _ in range(11)))
    code = KNOWN[id].by_layer.code(LINEAR, ["1"])
    after = changed(Source.of_object(model, torch.ones(1, 4)).open(), [code]).model
    plain = [
        type(layer) is nn.Linear and layer.weight.dtype is torch.float32
        for (layer,) in after.children()
    ]
    assert plain == [True, False, *[True] * 9]


def shifting(**by_path):
    """Return a change that adds to layers' biases, of which the output's error is known."""

    def code(_facts, paths):
        return "\n".join(
            f"model.{path}.bias.data.add_({by_path[path]})"
            if path in by_path
            else f"raise ValueError('{path} is none')"
            for path in paths
        )

    return ByLayer(("Linear",), code)


class Identities(nn.Module):
    """Layers that give what they get, the first the largest: of 1 the output is 1."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(4, 1), *(nn.Linear(1, 1) for _ in range(3))
        for layer in self.children():
            nn.init.constant_(layer.weight, 1 / layer.in_features)
            nn.init.zeros_(layer.bias)

    def forward(self, x):
        return self.d(self.c(self.b(self.a(x))))


def test_layers_that_hold_alone_are_taken_by_size_while_they_hold_together():
    by_layer = shifting(a=0.04, b=0.07, c=0.05, d=0.3)
    found = choice(Identities(), torch.ones(2, 4), by_layer, LINEAR, tolerance=0.1)
    assert found.paths == ("a", "c")
    d, b = found.left_out
    assert (d.paths, d.tested_alone, d.output.max_relative) == (("d",), True, pytest.approx(0.3))
    assert (b.paths, b.tested_alone, b.output.max_relative) == (("b",), False, pytest.approx(0.11))
    assert found.share == pytest.approx((5 + 2) / (5 + 2 + 2 + 2))


def test_layers_whose_change_raises_are_left_out():
    by_layer = shifting(a=0.0, b=0.0, c=0.0)
    found = choice(Identities(), torch.ones(2, 4), by_layer, LINEAR, tolerance=0.1)
    assert found.paths == ("a", "b", "c")
    assert found.left_out[0].output.reason == "ValueError: d is none"


def test_layers_are_grouped_by_the_module_around_them_and_neighbours_joined():
    def block():
        return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))

    model = nn.ModuleDict({
        "body": nn.Sequential(*(block() for _ in range(12))), "pool": nn.Linear(2, 2),
        "head": nn.Linear(2, 1),
    })  # fmt: skip
    groups = layer_groups(model, ["Linear"])
    # Two Linear(2, 2) of six fp32 numbers in a block; the smallest of all join at the end.
    assert groups[:11] == [((f"body.{number}",), 48) for number in range(11)]
    assert groups[11] == (("body.11", "pool", "head"), 48 + 24 + 12)
    assert len(groups) == MOST_GROUPS


def test_a_mixture_is_tried_after_all_layers_broke_the_output():
    made_world = breaking()
    made_world.choice = LayerChoice(("body", "head.out"), 0.75, (SENSITIVE,))
    trials = experiment(made_world, KNOWN["int8-dynamic"], candidate("fast"))
    assert [one.id for one in trials] == ["int8-dynamic", "int8-dynamic-layers", "fast"]
    whole, partial, _ = trials
    assert whole.outcome == "rejected"
    assert (partial.outcome, partial.left_out) == ("accepted", (SENSITIVE,))
    code = KNOWN["int8-dynamic"].by_layer.code(made_world.known, ["body", "head.out"])
    assert partial.code == code
    kinds, tolerance = KNOWN["int8-dynamic"].by_layer.kinds, KNOWN["int8-dynamic"].tolerance
    assert [one for one in made_world.asked if one[0] == "choose"] == [("choose", kinds, tolerance)]
    assert ("check", ("int8-dynamic-layers",), tolerance) in made_world.asked


def test_no_layer_that_holds_is_a_result():
    made_world = breaking()
    made_world.choice = LayerChoice((), 0.0, (SENSITIVE,))
    _, partial = experiment(made_world, KNOWN["int8-dynamic"])
    assert (partial.outcome, partial.code, partial.output) == ("rejected", "", None)
    assert words.reason(partial).endswith("Left out: head.fc: error 50 % > 10 %.")


@pytest.mark.parametrize(
    "made_world",
    [World({}, layers={"Linear": 3}), breaking(layers={"Linear": 1})],
    ids=["all layers hold", "one layer is all"],
)
def test_without_anything_to_leave_out_there_is_no_mixture(made_world):
    trials = experiment(made_world, KNOWN["int8-dynamic"])
    assert [one.id for one in trials] == ["int8-dynamic"]
    assert not [one for one in made_world.asked if one[0] == "choose"]


def test_a_budget_that_choosing_would_exceed_leaves_it_untried():
    made_world = breaking(look_seconds=1.0, parameter_bytes=10**9)
    _, partial = experiment(made_world, KNOWN["int8-dynamic"], budget=30.0)
    assert partial.outcome == "untried"
    assert partial.needed > 30
    assert "budget" in partial.reason
    assert not [one for one in made_world.asked if one[0] == "choose"]


def test_choosing_that_runs_on_is_stopped_by_the_budget():
    made_world = breaking(look_seconds=1.0, slow={"choose": 1e6})
    trials = experiment(made_world, KNOWN["int8-dynamic"], candidate("fast"), budget=60.0)
    assert made_world.time == pytest.approx(60 * (1 + GRACE_SHARE) + GRACE)
    assert [one.outcome for one in trials] == ["rejected", "untried", "untried"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_relative": 0.031, "bound": 0.01}, "a.0, a.1: error 3.1 % > 1.0 %"),
        ({"max_relative": None, "reason": "ValueError: no."}, "a.0, a.1: ValueError: no"),
        (
            {"bounded": "metric", "metric_before": 0.9, "metric_after": 0.7},
            "a.0, a.1: metric 0.9000 → 0.7000",
        ),
    ],
)
def test_layers_left_out_are_told_with_the_reason(changes, said):
    output = msgspec.structs.replace(BROKEN, **changes)
    for alone, end in ((True, ""), (False, " with the others")):
        layers = LeftOut(paths=("a.0", "a.1"), output=output, tested_alone=alone)
        trial = Trial(id="x", title="x", outcome="accepted", reason="", left_out=(layers,))
        assert words.details(trial) == [f"left out: {said}{end}"]


def test_torch_quantises_recurrent_layers_too():
    model = nn.ModuleList([nn.LSTM(8, 8), nn.Linear(8, 8)])
    known = made(layers={"LSTM": 1, "Linear": 1})
    int8 = KNOWN["int8-dynamic"]
    assert "{torch.nn.Linear, torch.nn.LSTM}" in int8.code(known)
    for code in (int8.code(known), int8.by_layer.code(known, ["0", "1"])):
        after = changed(Source.of_object(model, torch.ones(1)).open(), [code]).model
        assert [type(one).__module__.split(".")[3] for one in after] == ["quantized"] * 2


def uneven_world():
    real = dataclasses.replace(world(Uneven(), inputs()), _facts=LINEAR)
    real.block = lambda *_, **__: Block(-0.2, 1.0, 0.8)
    return real


@pytest.mark.slow
def test_layers_are_chosen_in_a_fresh_process():
    found = uneven_world().choose(KNOWN["int8-dynamic"].by_layer, 0.1)
    assert found.paths == ("wide", "last")
    assert [one.paths for one in found.left_out] == [("odd",)]


@pytest.mark.slow
def test_the_code_of_the_chosen_layers_keeps_the_output_in_a_fresh_process():
    found = Experiment(uneven_world(), (KNOWN["int8-dynamic"],), Silent()).run()
    whole, partial = found.trials
    assert whole.outcome == "rejected"
    assert (partial.outcome, partial.output.passed) == ("accepted", True)
    assert [one.paths for one in partial.left_out] == [("odd",)]
    assert "('wide.', 'last.')" in partial.code
    assert found.best.code == partial.code
