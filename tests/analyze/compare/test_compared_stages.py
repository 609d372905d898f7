"""Prefill and decode step of two generations side by side, layer by layer."""

import csv
import io

import msgspec
import pytest
from tests.support import generations

import torchgauge as tg
from torchgauge.records import rendering
from torchgauge.records.timeline.tree import Tree

BASE = generations.grid()
STEP = generations.step_seconds(1, 1038)


def with_trees(record, prefill=1.0, step=1.0):
    """Return a record whose trees take so many times as long."""
    factors = {"prefill": prefill, "decode": step}
    trees = tuple(
        msgspec.structs.replace(tree, tree=slowed(tree.tree, factors[tree.stage]))
        for tree in record.trees
    )
    return msgspec.structs.replace(record, trees=trees)


def slowed(tree, factor):
    """Return a tree whose feed-forward part takes `factor` times as long."""
    rows = []
    for row in tree.rows:
        in_part = "mlp" in row.path or (row.parent >= 0 and "mlp" in tree.rows[row.parent].path)
        host = round(row.host * factor) if in_part else row.host
        rows.append(msgspec.structs.replace(row, host=host))
    return Tree(rows=tuple(rows))


SLOWER = with_trees(generations.grid(slower=1.6), step=1.5)


def stages(comparison):
    return {stage.stage: stage for stage in comparison.stages}


def test_places_of_a_stage_add_up_to_its_change():
    comparison = tg.compare(BASE, SLOWER)
    decode, prefill = stages(comparison)["decode"], stages(comparison)["prefill"]
    part = 0.58 * STEP  # of which half is added
    assert decode.step_change == pytest.approx(0.5 * part, rel=1e-6)
    (layer,) = [place for place in decode.layers if place.contribution]
    assert (layer.name, layer.type) == ("model.layers.0.mlp", "LlamaMLP")
    assert layer.change == pytest.approx(0.5)
    assert sum(place.contribution for place in decode.layers) + decode.remainder == pytest.approx(
        decode.step_change
    )
    assert prefill.step_change == 0
    assert decode.label == "decode step, batch 1, prompt 1,024"


def test_a_gate_that_fails_names_the_layers_of_the_slower_stage():
    verdict = tg.gate(BASE, SLOWER)
    assert verdict.outcome == "fail"
    assert verdict.regressed_layers == (
        "decode step, batch 1, prompt 1,024: model.layers.0.mlp (LlamaMLP) +50.0 %, +2.73 ms "
        "(not proven)",
    )
    assert tg.gate(BASE, BASE).regressed_layers == ()


def test_forwards_with_other_caches_are_not_compared():
    longer = msgspec.structs.replace(
        SLOWER,
        trees=tuple(msgspec.structs.replace(tree, cached=tree.cached + 1) for tree in SLOWER.trees),
    )
    assert tg.compare(BASE, longer).stages == ()


def test_trees_of_one_side_alone_are_a_warning():
    comparison = tg.compare(BASE, msgspec.structs.replace(BASE, trees=()))
    assert comparison.stages == ()
    (warning,) = comparison.all_warnings
    assert "did not record the layers of prefill and decode step" in warning.message


def test_times_of_another_machine_have_no_relative_change():
    environment = msgspec.structs.replace(
        SLOWER.environment,
        machine=msgspec.structs.replace(SLOWER.environment.machine, cpu="Another CPU"),
    )
    elsewhere = msgspec.structs.replace(SLOWER, environment=environment)
    decode = stages(tg.compare(BASE, elsewhere))["decode"]
    assert {place.change for place in decode.layers} == {None}


def test_every_form_has_the_stages():
    comparison = tg.compare(BASE, SLOWER)
    html = rendering.text(comparison, "html").lower()
    for form in (str(comparison), comparison.to_markdown(), html):
        assert "model.layers.0.mlp" in form
        assert "decode step, batch 1, prompt 1,024" in form
    rows = list(csv.DictReader(io.StringIO(rendering.text(comparison, "csv", table="layers"))))
    assert {row["stage"] for row in rows} == {"prefill", "decode"}
    read = msgspec.json.decode(msgspec.json.encode(comparison), type=type(comparison))
    assert read == comparison
