"""Folded stacks and speedscope files: weights that add up, read by speedscope's own importer."""

import json
import re

import jsonschema
import pytest
from tests.support import exported_records as records
from tests.support.speedscope_import import SPEEDSCOPE, imported

from torchgauge.errors import InputError
from torchgauge.records.exported import WEIGHTS
from torchgauge.visible import visible

CLEAN = visible(re.sub("[\n\r\u2028]", " ", records.ODD.replace(";", ",")))
LINEAR = f"{records.ODD} (Linear)"


def test_each_line_is_a_stack_and_what_was_its_own():
    assert records.profile().to_folded().splitlines() == [
        "Net 10",
        "Net;body.0 (Conv2d) 100",
        "Net;body.0 (Conv2d);aten::conv2d 30",
        f"Net;{CLEAN} (Linear) 20",
        f"Net;{CLEAN} (Linear);aten::addmm 40",
        "Net;outside the model 5",
    ]


@pytest.mark.parametrize(
    ("weight", "total"),
    [
        ("time", 700),
        ("device", 700),
        ("host", 205),
        ("flops", 3000),
        ("bytes", 600),
        ("memory", 64),
    ],
)
def test_weights_add_up_to_the_tree(weight, total):
    text = records.profile(gpu=True).to_folded(weight=weight)
    assert sum(int(line.rpartition(" ")[2]) for line in text.splitlines()) == total


def test_a_count_has_stacks_of_its_work():
    lines = records.count().to_folded(weight="flops").splitlines()
    assert lines == ["Net;aten::add 8", f"Net;{CLEAN} (Linear);aten::addmm 600"]


def test_the_same_stack_is_one_line():
    import msgspec

    tree = records.tree()
    twice = msgspec.structs.replace(tree, rows=(*tree.rows, tree.rows[5]))
    assert records.profile(tree=twice).to_folded().splitlines()[-1] == "Net;outside the model 10"


@pytest.mark.parametrize("weight", WEIGHTS)
def test_what_the_record_does_not_hold_is_an_error(weight):
    bare = records.tree()
    profile = records.profile(tree=type(bare)(rows=bare.rows[:1]))
    if weight in ("time", "host"):
        assert profile.to_folded(weight=weight) == "Net 10\n"
        return
    with pytest.raises(InputError) as caught:
        profile.to_folded(weight=weight)
    assert caught.value.id == "figure-absent"


def test_a_record_without_a_tree_has_no_stacks():
    for record in (records.profile(tree=None), records.ranks()):
        for way in (record.to_folded, record.to_speedscope):
            with pytest.raises(InputError) as caught:
                way()
            assert caught.value.id == "no-tree"


def test_a_speedscope_file_has_a_profile_for_each_figure_the_devices_time_first():
    found = json.loads(records.profile(gpu=True).to_speedscope())
    assert [(one["name"], one["unit"], one["endValue"]) for one in found["profiles"]] == [
        ("time on the device", "nanoseconds", 700),
        ("time on the host", "nanoseconds", 205),
        ("FLOPs", "none", 3000),
        ("bytes of traffic", "bytes", 600),
        ("bytes allocated", "bytes", 64),
    ]


@pytest.mark.browser
@pytest.mark.parametrize("record", [records.profile(gpu=True), records.loop(), records.count()])
def test_speedscopes_schema_holds(record):
    schema = SPEEDSCOPE / "node_modules/speedscope/dist/release/file-format-schema.json"
    if not schema.exists():
        pytest.skip("needs speedscope: make test-all installs it")
    rules = json.loads(schema.read_text())
    broken = jsonschema.validators.validator_for(rules)(rules).iter_errors(
        json.loads(record.to_speedscope())
    )
    assert [error.message for error in broken] == []


@pytest.mark.browser
def test_speedscope_reads_the_trees_times(tmp_path):
    path = tmp_path / "run.speedscope.json"
    records.profile(gpu=True).to_speedscope(path)
    found = imported(path)
    host = found["time on the host"]
    assert (host["unit"], host["total"]) == ("nanoseconds", 205)
    assert host["frames"] == {
        "Net": {"self": 10, "total": 205},
        "body.0 (Conv2d)": {"self": 100, "total": 130},
        "aten::conv2d": {"self": 30, "total": 30},
        LINEAR: {"self": 20, "total": 60},
        "aten::addmm": {"self": 40, "total": 40},
        "outside the model": {"self": 5, "total": 5},
    }
    assert found["time on the device"]["frames"][records.ODD] == {"self": 700, "total": 700}
    assert found["FLOPs"]["frames"]["Net"] == {"self": 0, "total": 3000}


@pytest.mark.browser
def test_speedscope_reads_folded_stacks_too(tmp_path):
    path = tmp_path / "run.folded"
    records.profile().to_folded(path)
    (found,) = imported(path).values()
    assert found["total"] == 205
    assert found["frames"][f"{CLEAN} (Linear)"] == {"self": 20, "total": 60}
