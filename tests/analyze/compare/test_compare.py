"""Two records side by side: judgements, what forbids them, and places that add up."""

import math

import msgspec
import pytest
from tests.support import pages, records
from tests.support.latency_runs import ELEVEN, QUIET, TEN, changed_tree, layer_times, layered, timed

from torchgauge.analyze.compare.compare import compare
from torchgauge.analyze.compare.compared_memory import TWO_MEASURES
from torchgauge.analyze.gate.stored_gate import exact_ruling
from torchgauge.records.timeline.tree import Tree
from torchgauge.records.verdict import Tolerance

ALL_TIMES = {"latency", "p90", "p95", "p99", "throughput", "first_call"}


def judgements(found, *names):
    return tuple(found.change_of(name).judgement for name in names)


def test_a_run_equals_itself():
    found = compare(timed(*TEN), timed(*TEN), noise=QUIET)
    assert found.differences == ()
    assert judgements(found, "params", "disk", "memory", "latency") == ("same",) * 4
    assert found.step_change == 0
    assert all(place.contribution == 0 and not place.work_changed for place in found.layers)


def test_exact_figures_come_first_and_p50_once():
    names = [change.metric for change in compare(timed(*TEN), timed(*TEN)).changes]
    exact = [change.exact for change in compare(timed(*TEN), timed(*TEN)).changes]
    assert exact == sorted(exact, reverse=True)
    assert "latency" in names
    assert "p50" not in names


def test_a_tenth_more_time_is_worse_and_less_throughput_too():
    found = compare(timed(*TEN), timed(*ELEVEN), noise=QUIET)
    assert judgements(found, "latency", "throughput") == ("worse", "worse")
    latency, throughput = found.change_of("latency"), found.change_of("throughput")
    assert latency.change == pytest.approx(0.1)
    assert latency.interval.low < 0.1 < latency.interval.high
    assert throughput.change == pytest.approx(1 / 1.1 - 1)
    back = compare(timed(*ELEVEN), timed(*TEN), noise=QUIET)
    assert judgements(back, "latency", "throughput") == ("better", "better")


def test_a_host_never_calibrated_lets_a_tenth_pass_and_a_third_not():
    assert judgements(compare(timed(*TEN), timed(*ELEVEN)), "latency") == ("inconclusive",)
    third = tuple(4 / 3 * median for median in TEN)
    assert judgements(compare(timed(*TEN), timed(*third)), "latency") == ("worse",)


def test_few_processes_judge_by_the_floor_and_say_what_to_do():
    small = compare(timed(*TEN[:5]), timed(*ELEVEN)).change_of("latency")
    assert small.judgement == "inconclusive"
    assert "--processes 10" in small.reason
    assert "5 processes" in small.reason
    large = compare(timed(0.010), timed(0.013)).change_of("latency")
    assert (large.judgement, large.interval) == ("worse", None)
    assert "20%" in large.method
    assert "assumed" in large.method


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("machine", {"cpu": "Another CPU"}),
        ("software", {"torch": "2.12.0"}),
        ("settings", {"threads": 1}),
    ],
)
def test_across_machines_software_and_settings_times_are_not_judged(part, changes):
    where = records.environment()
    other = msgspec.structs.replace(
        where, **{part: msgspec.structs.replace(getattr(where, part), **changes)}
    )
    found = compare(timed(*TEN), timed(*ELEVEN, environment=other), noise=QUIET)
    assert not found.timing_comparable
    (difference,) = found.differences
    assert (difference.part, difference.name) == (part, next(iter(changes)))
    for change in found.changes:
        assert change.judgement == ("unknown" if change.metric in ALL_TIMES else "same") or (
            part == "software" and change.metric == "memory"
        ), change
    latency = found.change_of("latency")
    assert (latency.baseline, latency.current) == (pytest.approx(0.010), pytest.approx(0.011))
    assert latency.change is None  # both are shown, and no change
    assert all(place.change is None for place in (*found.layers, *found.operators))
    assert all(place.significant is None for place in found.layers)


def test_another_host_name_or_torchgauge_is_told_and_forbids_nothing():
    where = records.environment()
    other = msgspec.structs.replace(
        where, software=msgspec.structs.replace(where.software, torchgauge="0.2.0")
    )
    found = compare(timed(*TEN), timed(*TEN, environment=other))
    assert [one.name for one in found.differences] == ["torchgauge"]
    assert found.timing_comparable


def test_other_inputs_forbid_counts_but_not_sizes():
    target = records.profile().target
    wide = msgspec.structs.replace(
        target, inputs=(msgspec.structs.replace(target.inputs[0], shape=(4, 3, 8, 8)),)
    )
    size = records.profile().size
    more = msgspec.structs.replace(size, parameters=101)
    found = compare(timed(*TEN), timed(*TEN, target=wide, size=more))
    assert judgements(found, "params", "memory", "latency") == ("worse", "unknown", "unknown")
    assert any(difference.work for difference in found.differences)
    assert (found.layers, found.operators, found.step_change) == ((), (), None)


@pytest.mark.parametrize(
    ("changes", "parameters", "comparable"),
    [
        ({"name": "Other"}, 101, False),
        ({"spec": "model.py:other"}, 101, False),
        ({"name": "Other", "spec": "model.py:other"}, 100, True),  # renamed
        ({"spec": "elsewhere/model.py:make"}, 101, True),  # edited
    ],
)
def test_another_model_is_not_compared_unless_on_purpose(changes, parameters, comparable):
    base = records.profile()
    target = msgspec.structs.replace(base.target, **changes)
    size = msgspec.structs.replace(base.size, parameters=parameters)
    sides = timed(*TEN), timed(*ELEVEN, target=target, size=size)
    found = compare(*sides, noise=QUIET)
    assert found.timing_comparable == comparable
    judgement = "unknown" if not comparable else "worse"
    assert judgements(found, "latency") == (judgement,)
    assert any(change.change for change in found.changes) == comparable
    assert bool(found.layers) == comparable
    assert compare(*sides, noise=QUIET, across_models=True).timing_comparable


def test_what_one_side_did_not_record_is_no_change():
    found = compare(timed(*TEN), timed(*TEN, tree=None))
    (warning,) = found.warnings
    assert warning.id == "not-recorded"
    assert "The current run did not record layers" in warning.message
    layers_alone = Tree(rows=tuple(r for r in pages.tree().rows if r.kind in ("model", "layer")))
    deep, shallow = timed(*TEN), timed(*TEN, tree=msgspec.structs.replace(
        pages.tree(), rows=layers_alone.rows))  # fmt: skip
    for sides, lacking in (((deep, shallow), "current run"), ((shallow, deep), "baseline")):
        found = compare(*sides)
        assert found.operators == ()
        assert found.layers
        assert [w.message for w in found.warnings] == [
            f"The {lacking} did not record operators: they are not compared."
        ]
    assert compare(shallow, shallow).warnings == ()


def test_a_figure_that_one_side_lacks_is_unknown_and_not_zero():
    found = compare(timed(*TEN), timed(*TEN, memory=None)).change_of("memory")
    assert (found.judgement, found.current, found.change) == ("unknown", None, None)
    assert "current run" in found.reason


def test_contributions_and_what_is_elsewhere_add_up_to_the_steps_change():
    found = compare(timed(*TEN), timed(*TEN, tree=changed_tree(host=4 * pages.MS, flops=8_000_000)))
    assert found.step_change == pytest.approx(0.0015)
    parts = [place.contribution for place in found.layers]
    assert math.fsum(parts) + found.remainder == pytest.approx(found.step_change)
    first = found.layers[0]
    assert (first.name, first.contribution) == ("head", pytest.approx(0.0015))
    assert (first.baseline_flops, first.current_flops) == (4_000_000, 8_000_000)
    assert first.work_changed
    assert first.significant is None
    assert found.operators[0].name == "aten::addmm"


def test_layers_that_appear_and_vanish():
    rows = list(pages.tree().rows)
    rows[6] = msgspec.structs.replace(rows[6], name="top", path="top")
    found = compare(timed(*TEN), timed(*TEN, tree=Tree(rows=tuple(rows))))
    by_name = {place.name: place for place in found.layers}
    assert by_name["top"].appeared
    assert by_name["head"].vanished
    assert by_name["head"].contribution == pytest.approx(-0.0025)
    assert by_name["top"].contribution == pytest.approx(0.0025)
    assert by_name["top"].change is None
    assert found.step_change == 0


def test_the_layer_that_got_slower_is_found_and_no_other():
    old = timed(*TEN, tree=layered(), layers=layer_times(noise=0.01))
    new = timed(*ELEVEN, tree=layered(1.3), layers=layer_times(1.3, noise=0.01))
    found = compare(old, new, noise=QUIET)
    assert [place.name for place in found.layers if place.significant] == ["layer3"]
    guilty = found.layers[0]
    assert guilty.change == pytest.approx(0.3)
    assert guilty.interval.low > 0.25
    assert "Benjamini" in found.places_tested


def test_without_a_tree_there_are_no_places():
    found = compare(timed(*TEN), timed(*TEN, tree=None))
    assert (found.layers, found.step_change) == ((), None)


def in_runtime(peak, runtime="onnxruntime, CPUExecutionProvider"):
    run = timed(*TEN)
    target = msgspec.structs.replace(run.target, runtime=runtime)
    parts = msgspec.structs.replace(
        run.memory, peak=peak, workspace=run.memory.workspace + peak - run.memory.peak
    )
    return msgspec.structs.replace(run, target=target, memory=parts)


@pytest.mark.parametrize(
    ("more", "judgement", "outcome"), [(0.2, "same", "pass"), (0.5, "worse", "fail")]
)
def test_the_memory_of_a_process_is_the_same_within_what_processes_differ_by(
    more, judgement, outcome
):
    peak = timed(*TEN).memory.peak
    change = compare(in_runtime(peak), in_runtime(round(peak * (1 + more)))).change_of("memory")
    assert change.judgement == judgement
    tolerance = Tolerance(metric="memory", accepted=0.01, refused=0.03)
    assert exact_ruling(change, tolerance).outcome == outcome


def test_the_memory_of_a_process_is_not_compared_with_that_of_tensors():
    run = timed(*TEN)
    change = compare(run, in_runtime(run.memory.peak)).change_of("memory")
    assert (change.judgement, change.reason) == ("unknown", TWO_MEASURES)
