"""Two generations are compared shape by shape, and gated by their calls."""

import msgspec
import pytest
from tests.support import generations

import torchgauge as tg
from torchgauge.analyze.compare.shapes import compare_generations
from torchgauge.errors import InputError

GRID = generations.grid()


def changes(baseline, current):
    return {change.label: change for change in compare_generations(baseline, current).changes}


def with_cells(*cells):
    return generations.generation(cells, size=generations.size())


def test_every_shape_has_its_metrics_and_the_model_has_its_own_once():
    labels = list(changes(GRID, GRID))
    assert labels[:2] == ["params", "disk"]
    shapes = ("batch 1, prompt 128", "batch 1, prompt 1,024", "batch 4, prompt 128")
    metrics = ("memory", "ttft", "tpot", "tokens")
    assert set(labels[2:]) == {f"{metric}, {shape}" for metric in metrics for shape in shapes}
    assert len(labels) == 14


def test_a_change_is_that_of_the_calls():
    slower = changes(GRID, generations.grid(1.5))
    change = slower["tpot, batch 1, prompt 128"]
    assert change.change == pytest.approx(0.5)
    assert change.interval.low < 0.5 < change.interval.high
    assert (change.judgement, slower["memory, batch 1, prompt 128"].judgement) == ("worse", "same")
    rate = slower["tokens, batch 4, prompt 128"]
    assert (rate.change, rate.judgement) == (pytest.approx(1 / 1.5 - 1), "worse")
    assert "3 and 3 calls in a process each" in change.method


def test_a_change_within_what_hosts_differ_by_is_not_judged():
    change = changes(GRID, generations.grid(1.1))["ttft, batch 1, prompt 128"]
    assert (change.judgement, change.change) == ("inconclusive", pytest.approx(0.1))


def test_a_shape_of_one_side_is_named():
    both = changes(with_cells(generations.cell(1)), with_cells(generations.cell(2)))
    only_old, only_new = both["ttft, batch 1, prompt 128"], both["ttft, batch 2, prompt 128"]
    assert (only_old.current, only_new.baseline) == (None, None)
    assert only_old.reason == "the current run did not record it"
    assert only_new.reason == "the baseline did not record it"
    assert only_old.baseline == generations.cell(1).ttft.value


def test_a_shape_that_ran_out_of_memory_says_so():
    ended = generations.ended("out of memory", "Too large.")
    change = changes(with_cells(generations.cell(1)), with_cells(ended))[
        "ttft, batch 1, prompt 128"
    ]
    assert change.reason == "the current run did not record it: out of memory"


def test_shapes_of_other_caches_beams_or_new_tokens_are_never_compared():
    other_shapes = [
        generations.cell(1, cache_kind="static"), generations.cell(1, beams=2),
        generations.cell(1, new_tokens=8),
    ]  # fmt: skip
    for other in other_shapes:
        for label, change in changes(with_cells(generations.cell(1)), with_cells(other)).items():
            if "batch" in label:
                assert None in (change.baseline, change.current), label


def test_other_machines_are_not_judged():
    environment = GRID.environment
    machine = msgspec.structs.replace(environment.machine, cpu="Another CPU")
    there = msgspec.structs.replace(environment, machine=machine)
    comparison = compare_generations(
        GRID, msgspec.structs.replace(generations.grid(1.5), environment=there)
    )
    assert not comparison.timing_comparable
    timed = [change for change in comparison.changes if change.metric == "ttft"]
    assert {change.judgement for change in timed} == {"unknown"}


def test_compare_and_gate_read_files(tmp_path):
    old, new = GRID.save(tmp_path / "old.json"), generations.grid(1.5).save(tmp_path / "new.json")
    assert len(tg.compare(old, new).changes) == 14
    verdict = tg.gate(old, new)
    assert verdict.outcome == "fail"
    failed = {ruling.label for ruling in verdict.rulings if ruling.outcome == "fail"}
    assert len(failed) == 9
    assert "tokens, batch 4, prompt 128" in failed
    assert str(verdict).startswith("✗ FAIL  ttft, tpot, tokens (9 of 13)")


def test_a_gate_passes_where_the_refused_change_is_excluded():
    texts = [f"{name}:10%:60%" for name in ("ttft", "tpot", "tokens")]
    assert tg.gate(GRID, GRID, tolerance=texts).outcome == "pass"
    assert tg.gate(GRID, generations.grid(1.4), tolerance=texts).outcome == "inconclusive"
    assert tg.gate(GRID, generations.grid(1.5), tolerance=texts).outcome == "fail"


def test_a_tolerance_below_the_floor_is_not_decided_by_so_few_sessions():
    verdict = tg.gate(GRID, GRID, tolerance="ttft:1%:3%")
    assert tg.gate(GRID, GRID, metrics=["ttft"]).outcome == "pass"  # 25 % are above it
    assert verdict.outcome == "inconclusive"
    reasons = [ruling.reason for ruling in verdict.rulings if ruling.metric == "ttft"]
    assert all("give several runs as --baseline" in reason for reason in reasons)


def test_regressions_are_named_by_shape():
    assert not tg.detect_regressions(GRID, GRID)
    worse = tg.detect_regressions(GRID, generations.grid(1.5))
    assert len(worse.regressed) == 9
    assert {change.metric for change in worse.regressed} == {"ttft", "tpot", "tokens"}
    assert {change.shape for change in worse.regressed} == {c.size_label for c in GRID.done}
    assert not tg.detect_regressions(GRID, generations.grid(0.5))


def test_shapes_that_only_one_side_tried_are_no_matter_of_a_gate():
    more = with_cells(*GRID.done, generations.cell(8))
    verdict = tg.gate(with_cells(*GRID.done), more, metrics=["memory"])
    assert verdict.outcome == "pass"
    assert {ruling.shape for ruling in verdict.rulings} == {cell.size_label for cell in GRID.done}
    labels = {change.label for change in verdict.comparison.changes}
    assert "ttft, batch 8, prompt 128" in labels


def test_a_shape_that_no_longer_fits_does_not_pass():
    ended = with_cells(generations.ended("out of memory", "Too large."))
    verdict = tg.gate(with_cells(generations.cell(1)), ended, metrics=["ttft"])
    assert verdict.outcome == "inconclusive"
    assert verdict.rulings[0].reason.endswith("out of memory")


def test_many_shapes_share_the_error():
    """A change that fails alone is no failure among many shapes: α is divided."""
    slower, steady = generations.cell(1, slower=1.29), [generations.cell(n) for n in range(2, 30)]
    alone = tg.gate(with_cells(generations.cell(1)), with_cells(slower), metrics=["ttft"])
    among = tg.gate(
        with_cells(generations.cell(1), *steady), with_cells(slower, *steady), metrics=["ttft"]
    )
    assert (alone.rulings[0].outcome, among.rulings[0].outcome) == ("fail", "inconclusive")


def test_a_generation_and_a_profile_are_not_compared(tmp_path):
    from tests.support import records

    profile = records.profile().save(tmp_path / "profile.json")
    generation = GRID.save(tmp_path / "generation.json")
    with pytest.raises(InputError) as caught:
        tg.compare(profile, generation)
    assert caught.value.id == "not-a-profile"
    assert "torchgauge generate" in caught.value.remedy
