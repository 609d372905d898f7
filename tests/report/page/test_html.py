"""The page before a browser sees it: what it holds, what of it could run, how big it is."""

import base64
import hashlib
import subprocess
import sys

import msgspec
import pytest
from tests.support import pages, records
from tests.support.page_data import Elements, data, parts, table
from tests.support.pages import cost, loop, roofs, system_with_gpu
from tests.support.paths import TINY_TRAINING
from tests.support.recorded_trees import recorded_tree

from torchgauge.analyze.findings.catalogue import findings
from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.share_rules import farthest_from_roof, widest_layer
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.records import codec
from torchgauge.records.latency.latency import LatencyRun
from torchgauge.records.record import Interval
from torchgauge.records.timeline import tables
from torchgauge.records.work.roofline import Roofline
from torchgauge.records.work.utilization import Utilization
from torchgauge.report.content.findings import MAX_FINDINGS
from torchgauge.report.page.html import page, render
from torchgauge.visible import visible


def test_without_data_a_page_is_below_220_kb():
    assert len(page("", {}).encode()) < 220_000


def test_nothing_in_the_page_points_outside_of_it():
    for tag, attributes in Elements(render(pages.with_tree())).found:
        assert not {"src", "href", "action", "data", "srcset"} & set(attributes), tag


def test_the_policy_admits_this_script_and_this_style_alone():
    elements = Elements(render(pages.with_tree()))
    policy = next(a["content"] for _, a in elements.found if a.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for (tag, attributes), text in zip(elements.found, elements.texts, strict=True):
        if tag == "style" or (tag == "script" and "type" not in attributes):
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"{tag}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize(
    "name",
    [
        "</script><script>x</script>",
        "<img src=x onerror=y>",
        "<!--",
        "&lt;",
        "\"'`",
        "\u202e\u2028",
    ],
)
def test_a_name_is_data_and_comes_back_as_it_can_be_seen(name):
    tree = pages.tree()
    rows = (tree.rows[0], msgspec.structs.replace(tree.rows[1], name=name), *tree.rows[2:])
    target = msgspec.structs.replace(records.profile().target, name=name, spec=name)
    record = records.profile(tree=msgspec.structs.replace(tree, rows=rows), target=target)
    text = render(record)
    plain = render(pages.with_tree())
    assert [tag for tag, _ in Elements(text).found] == [tag for tag, _ in Elements(plain).found]
    assert visible(name) in data(text)["parts"]["tree"]["texts"]
    assert data(text)["title"] == visible(name)


def test_a_part_that_was_not_measured_is_no_view_and_no_zero():
    found = parts(
        records.profile(latency=None, throughput=None, memory=None, system=None, size=None)
    )
    assert set(found) == {"overview", "method", "environment"}
    assert {one["value"] for one in found["overview"]["figures"]} == {"unknown"}


def test_figures_say_whether_they_were_measured_or_counted():
    figures = {one["label"]: one for one in parts(records.profile())["overview"]["figures"]}
    assert figures["latency"]["how"] == "measured"
    assert figures["latency"]["note"] == "95 % in 9.900 … 10.10 ms (±1.0 %)"
    assert figures["parameters"]["how"] == "counted"
    assert figures["FLOPs"] == {
        "label": "FLOPs",
        "value": "unknown",
        "note": "not measured in this run",
        "how": "",
        "view": "",
    }


def test_the_trees_columns_hold_every_node_and_leave_out_what_is_unknown():
    tree = parts(pages.with_tree())["tree"]
    columns = tree["columns"]
    assert {len(column) for column in columns.values()} == {9}
    assert [tree["texts"][at] for at in columns["name"]] == [row.name for row in pages.tree().rows]
    assert columns["flops"][:4] == [None, None, None, 6_000_000]
    assert "device" not in columns


def test_tables_are_those_of_the_record():
    record = pages.with_tree()
    shown, meant = table(record, "layers"), tables.layers(record.tree).columns
    assert shown["layer"] == ["block.conv", "block.relu", "head"] == meant["path"][2:]
    assert shown["time"] == [3_000_000, 1_500_000, 2_500_000]
    assert shown["share"] == [0.3, 0.15, 0.25]
    assert "device time" not in shown
    around = table(record, "containers")
    assert around["layer"] == ["Net", "block"]
    assert around["time"] == [10_000_000, 5_000_000]
    assert table(record, "buckets")["time"] == [1_500_000]
    assert table(record, "operators")["self"] == [3_000_000, 2_500_000, 1_500_000]


def test_rows_of_layers_know_their_node():
    found = next(one for one in parts(pages.with_tree())["tables"] if one["name"] == "layers")
    rows = pages.tree().rows
    assert [rows[node].name for node in found["nodes"]] == ["conv", "relu", "head"]


def test_on_a_device_time_is_the_devices():
    record = records.profile(tree=pages.on_device())
    model = table(record, "containers")
    assert model["time"] == [4_000_000]
    assert model["host"] == [3_000_000]
    assert table(record, "layers")["time"] == [3_000_000]
    assert table(record, "kernels")["grid"] == ["8×1×1", "4×1×1"]


def test_a_recorded_trace_is_shown_with_its_tables():
    record = records.profile(tree=recorded_tree(read_events(TINY_TRAINING)))
    names = {one["name"] for one in parts(record)["tables"]}
    assert {"containers", "operators"} <= names


def test_a_count_alone_gives_a_tree_by_work():
    tree = parts(records.profile(cost=cost(), latency=None, throughput=None))["tree"]
    assert tree["figures"] == [["flops", "FLOPs", "count"], ["bytes", "bytes moved", "bytes"]]
    assert tree["columns"]["parent"] == [-1, 0, 1, 0]
    assert tree["columns"]["flops"] == [0, 0, 100, None]  # no formula is not no work
    assert tree["columns"]["unknown"] == [0, 0, 0, 2]
    assert tree["how"] == "counted"


def test_the_roofline_has_the_roofs_of_the_dtypes_that_the_model_multiplies():
    near = Roofline(
        roofs=roofs(),
        intensity=None,
        lower_bound=0.001,
        time=None,
        flops_per_second=None,
        bytes_per_second=None,
        efficiency=None,
        at_least=False,
    )
    found = parts(pages.with_tree(cost=cost(), roofline=near))["roofline"]
    assert found["roofs"] == [
        {
            "device": "A CPU",
            "source": "datasheet",
            "peaks": {"float32": 1e12},
            "traffic": {"memory": 1e11, "cache": 4e11},
        }
    ]
    both = msgspec.structs.replace(
        near, roofs=msgspec.structs.replace(roofs(), source="measured"), datasheet=roofs()
    )
    drawn = parts(pages.with_tree(cost=cost(), roofline=both))["roofline"]["roofs"]
    assert [one["source"] for one in drawn] == ["measured", "datasheet"]
    without = parts(pages.with_tree(cost=cost()))["roofline"]
    assert set(without) == {"missing", "command"}
    assert "--roofs" in without["command"]
    target = msgspec.structs.replace(records.profile().target, training=True)
    assert "roofline" not in parts(pages.with_tree(cost=cost(), target=target))
    points = found["points"]
    assert points["path"] == ["Net", "block.conv", "block.relu", "head"]  # block does nothing
    assert points["intensity"][1] == 6_000
    assert points["speed"][1] == pytest.approx(2e9)  # 6 MFLOP in 3 ms


def test_every_timed_call_is_there_with_its_warm_up():
    found = parts(records.profile())["latency"]
    assert found["runs"] == [
        {"samples": [13_000_000, 10_000_000, 10_100_000, 9_900_000, 10_000_000], "warmup": 1}
    ]
    assert found["interval"] == [9_900_000, 10_100_000]


def test_a_percentile_of_too_few_samples_is_not_drawn():
    few = records.latency()
    assert parts(records.profile(latency=few))["latency"]["percentiles"] == {}
    known = msgspec.structs.replace(
        few, percentile_intervals={"p90": Interval(low=0.0101, high=0.0103)}
    )
    drawn = parts(records.profile(latency=known))["latency"]["percentiles"]
    assert drawn == {"p90": round(few.p90 * 1e9)}


def test_what_was_alive_at_the_peak_adds_up_to_it():
    found = parts(records.profile())["memory"]
    assert sum(found["parts"].values()) == found["peak"] == 1_000
    assert (found["time"], found["live"]) == ([0, 10], [600, 1_000])


def test_what_a_gpu_did_is_a_series_for_each_figure_that_its_driver_told():
    found = parts(records.profile(system=system_with_gpu()))["system"]["gpus"]
    times = [500_000_000, 1_000_000_000, 1_500_000_000]
    assert found == [
        {"title": "GPU 0 in use", "unit": "share", "time": times, "values": [None, 0.5, 0.75]},
        {
            "title": "GPU 0 memory, used by all processes",
            "unit": "bytes",
            "time": times,
            "values": [2_000_000_000, 3_000_000_000, 1_000_000_000],
        },
        {"title": "GPU 0 clock", "unit": "hertz", "time": times, "values": [1.8e9] * 3},
    ]


def test_three_findings_in_order_of_what_they_are_about():
    found = findings(pages.with_tree())
    assert [one.title for one in found[:MAX_FINDINGS]] == [
        "block.conv takes 30 % of the time",
        "aten::conv2d takes 30 % of the time",
        "ReLU takes 15 % of the time for <0.1 % of the FLOPs",
    ]
    assert found[0].node == 2


def test_time_out_of_proportion_to_work_is_found():
    """relu: 1.5 of 10 ms, for 1 of 10,001 kFLOP."""
    (found,) = [one for one in findings(pages.with_tree()) if one.id == "out-of-proportion"]
    assert found.title == "ReLU takes 15 % of the time for <0.1 % of the FLOPs"
    assert found.node == 4


def test_a_few_slow_calls_are_a_finding_only_among_many():
    few = records.latency()
    slow = msgspec.structs.replace(few, p99=0.03)
    assert "slow-tail" not in {one.id for one in findings(records.profile(latency=slow))}
    run = msgspec.structs.asdict(few.processes[0]) | {"samples": (0.01,) * 300}
    many = msgspec.structs.replace(slow, processes=(LatencyRun(**run),))
    (found,) = [one for one in findings(records.profile(latency=many)) if one.id == "slow-tail"]
    assert found.title == "The slowest calls take 3.0× the median"


def test_a_loop_has_a_page_of_its_steps(tmp_path):
    path = tmp_path / "loop.html"
    text = loop().to_html(path)
    assert path.read_text() == text
    found = data(text)["parts"]
    assert found["steps"]["durations"] == [20_000_000, 10_000_000, 10_000_000, 15_000_000]
    assert found["steps"]["phases"] == [
        ["without a profiler", 3, 40_000_000],
        ["recorded", 1, 15_000_000],
    ]
    assert found["overview"]["figures"][0]["value"] == "10.00 ms"
    assert {"tree", "tables", "method", "environment"} <= set(found)


def test_a_saved_record_renders_the_same_without_torch(tmp_path):
    record = pages.with_tree()
    record.save(tmp_path / "profile.json")
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from torchgauge.records import codec\n"
        "codec.load(Path(sys.argv[1])).to_html(sys.argv[2])\n"
    )
    page_path = tmp_path / "page.html"
    command = [sys.executable, "-c", script, str(tmp_path / "profile.json"), str(page_path)]
    subprocess.run(command, check=True)
    assert page_path.read_text() == record.to_html()
    assert codec.load(tmp_path / "profile.json").to_html() == record.to_html()


def test_a_node_is_a_finding_once():
    """A layer that takes most of the time and is farthest from the roofs is told of once."""
    tree = pages.tree()
    rows = [
        msgspec.structs.replace(row, lower_bound=1_000) if row.kind == "operator" else row
        for row in tree.rows
    ]
    record = pages.with_tree(tree=msgspec.structs.replace(tree, rows=tuple(rows)))
    evidence = Evidence.from_record(record)
    rules = (farthest_from_roof, widest_layer)
    assert {one.node for rule in rules for one in rule.find(evidence)} == {2}
    nodes = [one.node for one in findings(record) if one.node is not None]
    assert len(nodes) == len(set(nodes)) == 3


def test_a_loop_says_its_phases_throughput_and_what_matters():
    record = loop()
    shown = parts(record)["overview"]
    assert [figure["label"] for figure in shown["figures"]][:2] == ["time of a step", "clocks"]
    assert shown["findings"][0]["title"].startswith("block.conv takes 30 %")
    assert shown["phases"] is None  # inference alone has one phase
    used = Utilization(model_flops=6, executed_flops=6, seconds=0.016, samples_per_second=1000.0)
    figures = parts(msgspec.structs.replace(record, utilization=used))["overview"]["figures"]
    throughput = next(figure for figure in figures if figure["label"] == "samples")
    assert (throughput["value"], throughput["how"]) == ("1,000 samples/s", "measured")
    rows = tuple(
        msgspec.structs.replace(row, phase="backward") if row.name == "aten::addmm" else row
        for row in record.tree.rows
    )
    trained = msgspec.structs.replace(record, tree=msgspec.structs.replace(record.tree, rows=rows))
    phases = parts(trained)["overview"]["phases"]
    assert phases["parts"] == [
        ["forward", 1_500_000],
        ["backward", 2_500_000],
        ["everything else", 6_000_000],
    ]
    assert phases["step"] == 10_000_000
