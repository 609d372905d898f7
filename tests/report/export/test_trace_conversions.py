"""Parts of a recorded trace for other tools: by hand, and as those tools read them."""

import json
from collections import Counter, defaultdict

import jsonschema
import pytest
from tests.support.kineto_events import op, read
from tests.support.paths import public_trace
from tests.support.span_parts import EVENTS, TEXT
from tests.support.speedscope_import import SPEEDSCOPE, imported

import torchgauge as tg
from torchgauge.analyze.trace.recording import recording
from torchgauge.analyze.trace.selection import Part, select
from torchgauge.readers.kineto import raw_events
from torchgauge.readers.kineto.kineto import read_events
from torchgauge.report.export import folded as trace_folded
from torchgauge.report.export import speedscope as trace_speedscope
from torchgauge.report.export.stacks import Lines

FIRST = "Net_0 (Net);Linear_0 (Linear)"
SECOND = "Net_0 (Net);Linear_1 (Linear)"
BACKWARD = f"{SECOND};autograd::engine::evaluate_function: AddmmBackward0;AddmmBackward0"


def lines(events, part=Part()):  # noqa: B008
    found = recording(events)
    return Lines(found, select(found, part))


def written(way, *ranks):
    return b"".join(way.parts(iter(ranks))).decode()


def folded(events, part=Part()):  # noqa: B008
    text = written(trace_folded, ("", lines(events, part)))
    return {stack: int(own) for stack, _, own in (x.rpartition(" ") for x in text.splitlines())}


def speedscope(events, part=Part()):  # noqa: B008
    return json.loads(written(trace_speedscope, ("", lines(events, part))))


def totals(profile, frames):
    """Return the time of each stack, and check the profile's events as speedscope does."""
    own, stack, now = Counter(), [], profile["startValue"]
    for event in profile["events"]:
        assert event["at"] >= now
        if stack:
            own[";".join(stack)] += event["at"] - now
        now = event["at"]
        if event["type"] == "O":
            stack.append(frames[event["frame"]]["name"])
        else:
            assert stack.pop() == frames[event["frame"]]["name"]
    assert not stack
    assert now <= profile["endValue"]
    return +own  # without frames that have nothing of their own


@pytest.fixture(scope="module")
def events():
    return read_events(TEXT.encode())


def test_device_time_by_stack(events):
    assert folded(events) == {
        "Net_0 (Net);launched before the window;before": 3000,
        f"{FIRST};aten::linear;aten::addmm;gemm": 8000,
        f"{SECOND};aten::linear;gemm": 6000,
        f"{BACKWARD};gemm_back": 9000,
        "Net_0 (Net);memory copies;aten::item;Memcpy DtoH (Device -> Pinned)": 5000,
    }
    assert sum(folded(events, Part(layer="Linear_1")).values()) == 15_000


def test_where_no_device_worked_it_is_the_hosts_time():
    host = [one for one in EVENTS if one.get("cat") not in ("kernel", "gpu_memcpy")]
    found = folded(read_events(json.dumps(host).encode()))
    assert found[f"{FIRST};aten::linear;aten::addmm"] == 10_000
    assert found[f"{FIRST};aten::linear"] == 10_000
    assert found[FIRST] == 10_000
    assert found["Net_0 (Net)"] == 60_000 - 30_000 - 15_000
    assert found[BACKWARD] == 8_000
    assert sum(found.values()) == 200_000 + 10_000  # the main thread, and the engine's


def test_a_stream_and_a_thread_is_a_profile_in_real_time(events):
    found = speedscope(events)
    frames = found["shared"]["frames"]
    assert [(one["name"], one["startValue"], one["endValue"]) for one in found["profiles"]] == [
        ("device 0, stream 7", 2_000, 145_000),
        ("main", 0, 200_000),
        ("thread 2", 70_000, 80_000),
    ]
    device, main, engine = (totals(one, frames) for one in found["profiles"])
    assert device == folded(events)
    opened = [one["at"] for one in found["profiles"][0]["events"] if one["type"] == "O"]
    assert sorted({*opened}) == [2_000, 110_000, 120_000, 130_000, 140_000]
    assert main[f"{FIRST};aten::linear"] == 10_000
    assert sum(main.values()) == 200_000
    assert engine == {BACKWARD: 8_000, BACKWARD.rpartition(";")[0]: 2_000}


def test_what_runs_on_without_a_pause_stays_open(events):
    main = speedscope(events)["profiles"][1]["events"]
    net = [one for one in main if one["type"] == "O" and one["at"] == 5_000]
    assert len(net) == 0  # "Net_0" is around all, for it is the model
    layer = [one for one in main if one["at"] == 10_000]
    assert [one["type"] for one in layer] == ["O"]


def test_work_of_one_stream_that_overlaps_is_beside_itself():
    gemm = {**EVENTS[11], "ts": 115}
    found = speedscope(read_events(json.dumps([*EVENTS, gemm]).encode()))
    names = [one["name"] for one in found["profiles"]]
    assert names[:2] == ["device 0, stream 7", "device 0, stream 7, work at the same time (1)"]
    frames = found["shared"]["frames"]
    device = [totals(one, frames) for one in found["profiles"][:2]]
    assert sum(sum(one.values()) for one in device) == 31_000 + 8_000


def test_work_that_names_no_stream_is_there():
    bare = {key: value for key, value in EVENTS[11].items() if key != "args"}
    found = speedscope(read_events(json.dumps([bare]).encode()))
    assert [one["name"] for one in found["profiles"]] == ["device work of an unknown stream"]


@pytest.mark.slow
def test_stacks_may_be_deeper_than_python_calls():
    depth = 3000
    events = read(*(op(f"aten::op{at % 3}", at, 2 * (depth - at)) for at in range(depth)))
    assert max(stack.count(";") for stack in folded(events)) == depth
    found = speedscope(events)
    assert len(found["profiles"][0]["events"]) >= 2 * depth


def test_an_unknown_form_is_said(tmp_path):
    (tmp_path / "trace.json").write_text(TEXT)
    with pytest.raises(tg.InputError, match="Choose one of speedscope, folded, parquet, chrome"):
        tg.convert_trace(tmp_path / "trace.json", "svg", tmp_path / "out.svg")


def test_ranks_are_told_apart(events):
    ranks = [(f"rank {number}", lines(events, Part(step=4))) for number in range(2)]
    text = written(trace_folded, *ranks).splitlines()
    assert [line.partition(";")[0] for line in text] == ["rank 0", "rank 1"]
    found = json.loads(written(trace_speedscope, *ranks))
    assert [one["name"] for one in found["profiles"]] == [
        "rank 0, device 0, stream 7", "rank 0, main", "rank 1, device 0, stream 7", "rank 1, main",
    ]  # fmt: skip


def test_chrome_keeps_the_recorded_events_themselves(tmp_path):
    spaced = json.dumps(json.loads(TEXT), indent=2).replace('"dur": 8', '"dur":  8.000')
    source, out = tmp_path / "trace.json", tmp_path / "part.json"
    source.write_text(spaced)
    tg.convert_trace(source, "chrome", out, step=4)
    kept, header = json.loads(out.read_text()), json.loads(spaced)
    fourth = [one for one in json.loads(spaced)["traceEvents"] if _fourth(one)]
    assert kept.pop("traceEvents") == fourth
    del header["traceEvents"]
    assert kept == header
    tg.convert_trace(source, "chrome", out, layer="Linear_1")
    assert b'"dur":  8.000' in out.read_bytes()  # to the byte
    again = read_events(out)
    assert again.device_work.correlation.tolist() == [2, 3]


def test_chrome_is_the_same_in_chunks_of_any_size(tmp_path, monkeypatch):
    source, out = tmp_path / "trace.json", tmp_path / "part.json"
    source.write_text(TEXT)
    whole = tg.convert_trace(source, "chrome", out, step=3, layer="Linear_1").read_bytes()
    for size in (64, 300, 1000):
        monkeypatch.setattr(raw_events, "_CHUNK", size)
        tg.convert_trace(source, "chrome", out, step=3, layer="Linear_1")
        assert json.loads(out.read_bytes()) == json.loads(whole)


def _fourth(event):
    launched = event.get("args", {}).get("correlation") == 4
    own = event["ph"] in "Xi" and event["ts"] >= 100 and event["pid"] == 1
    flow = event.get("cat") == "ac2g" and event["id"] == 4
    device = event.get("cat") in ("kernel", "gpu_memcpy", "gpu_user_annotation")
    return event["ph"] == "M" or launched or flow or (own and not device)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["h100_bert_small", "h100_qwen_0.5b"])
def test_chrome_of_all_of_it_is_all_of_it(name, tmp_path):
    path, out = public_trace(name), tmp_path / "all.json.gz"
    tg.convert_trace(path, "chrome", out)
    before, after = (tg.read_trace(one).ranks[0] for one in (path, out))
    assert after.device_time == before.device_time
    assert after.tree == before.tree
    assert after.contents == before.contents


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["h100_bert_small", "h100_qwen_0.5b", "a100_nccl_rank0of2"])
def test_times_add_up_to_those_of_the_record(name):
    path = public_trace(name)
    record, events = tg.read_trace(path).ranks[0], read_events(path)
    device = round(record.device_time * 1e9)
    assert sum(folded(events).values()) == device
    found = speedscope(events)
    frames = found["shared"]["frames"]
    streams = [one for one in found["profiles"] if one["name"].startswith("device ")]
    assert sum(sum(totals(one, frames).values()) for one in streams) == device


def test_steps_and_the_rest_add_up_to_the_whole():
    path = public_trace("a100_nccl_rank0of2")
    events = read_events(path)
    found = recording(events)
    own = defaultdict(int)
    for number in sorted(set(found.step(found.time).tolist()) - {-1}):
        for stack, time in folded(events, Part(step=number)).items():
            own[stack] += time
    rest = found.step(found.time) == -1
    work = found.work.row
    left = int(events.duration[work][rest[work]].sum())
    whole = folded(events)
    assert sum(own.values()) + left == sum(whole.values())
    assert all(time <= whole[stack] for stack, time in own.items())


@pytest.mark.browser
def test_speedscope_takes_it(events, tmp_path):
    schema = SPEEDSCOPE / "node_modules/speedscope/dist/release/file-format-schema.json"
    if not schema.exists():
        pytest.skip("needs speedscope: make test-all installs it")
    rules = json.loads(schema.read_text())
    content = speedscope(events)
    broken = jsonschema.validators.validator_for(rules)(rules).iter_errors(content)
    assert [error.message for error in broken] == []
    path = tmp_path / "trace.speedscope.json"
    path.write_text(json.dumps(content))
    found = imported(path)
    assert found["device 0, stream 7"]["frames"]["gemm"] == {"self": 14_000, "total": 14_000}
    assert found["main"]["frames"]["Linear_0 (Linear)"] == {"self": 10_000, "total": 30_000}


def ends_of_arrows(text):
    ends = defaultdict(set)
    for event in json.loads(text)["traceEvents"]:
        if event["ph"] in "stf":
            ends[event["cat"], event["id"]].add(event["ph"])
    return ends


def test_a_part_has_no_arrow_with_one_end(tmp_path):
    path, out = public_trace("a100_nccl_rank0of2"), tmp_path / "part.json"
    events = read_events(path)
    found = recording(events)
    step = int(found.step(found.time).max())
    ends = ends_of_arrows(tg.convert_trace(path, "chrome", out, step=step).read_bytes())
    assert ends
    assert {frozenset(pair) for pair in ends.values()} == {frozenset("sf")}


def test_arrows_of_an_unknown_kind_are_in_the_whole_alone(tmp_path):
    source, out = tmp_path / "trace.json", tmp_path / "part.json"
    odd = [
        {"ph": phase, "cat": "fence", "name": "fence", "id": 1, "pid": 1, "tid": 1, "ts": ts}
        for phase, ts in (("s", 3), ("f", 150))
    ]
    source.write_text(json.dumps({"traceEvents": [*json.loads(TEXT)["traceEvents"], *odd]}))
    whole = ends_of_arrows(tg.convert_trace(source, "chrome", out).read_bytes())
    assert whole["fence", 1] == {"s", "f"}
    part = ends_of_arrows(tg.convert_trace(source, "chrome", out, step=3).read_bytes())
    assert part
    assert ("fence", 1) not in part
