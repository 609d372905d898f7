"""What the rows of `make gpu` compute, from figures known by hand and from made recordings."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import msgspec
import pytest
from tests.support.kineto_events import kernel, launch, launched, mark, module, op, read

from gpu_rows import (
    attribution,
    coverage,
    faults,
    generation,
    gpu_tests,
    latency,
    memory,
    mfu,
    operators,
    out_of_memory,
    power,
    recording_cost,
    recordings,
    roofs,
    snapshots,
    tables,
)
from gpu_rows.every import ROWS
from gpu_rows.line import judged
from gpu_rows.machine import Machine
from torchgauge.analyze.trace.rank_trace import rank_trace
from torchgauge.records.memory.memory import Fragmentation
from torchgauge.records.system import GpuSample, GpuUse, Use
from torchgauge.records.work.roofline import BandwidthPoint, Roofs


def test_a_verdict_needs_a_goal():
    assert judged("a", "1").verdict == "measured"
    assert judged("a", "1", met=True).verdict == "met"
    assert judged("a", "1", met=False, ours=1.0).figures == {"ours": 1.0}


def test_device_time_is_attributed_to_layers_and_named_buckets_alone():
    """60 µs in a layer, 20 communication, 15 outside of the model, 5 launched before."""
    events = read(
        mark("ProfilerStep#0", 0, 200),
        module("Net_0", 10, 50),
        op("aten::mm", 12, 20),
        launch(1, 15),
        kernel("gemm", 30, 60, 1),
        launched("ncclDevKernel_AllReduce_Sum", 100, 20, at=20),
        launched("elsewhere", 130, 15, at=100),
        kernel("older", 1, 5, 77),
    )
    found = attribution.shares(rank_trace(events, "made.json")[0].tree)
    assert found.device == pytest.approx(100e-6)
    assert found.layers == pytest.approx(0.6)
    assert found.buckets == pytest.approx(0.2)
    assert found.attributed == pytest.approx(0.8)


def test_device_time_without_any_beside_it_is_missed():
    found = attribution.Shares(1e-3, 0.995, 0.0)
    verdicts = [
        [line.verdict for line in attribution.compared("m", shares, beside)]
        for shares, beside in ((found, 1.04e-3), (found, 0.0), (None, 1e-3))
    ]
    assert verdicts == [["met", "met"], ["met", "missed"], ["missed"]]


def test_device_time_of_key_averages_counts_once():
    def event(microseconds, kind, annotation=False):
        return SimpleNamespace(
            self_device_time_total=microseconds, device_type=kind, is_user_annotation=annotation
        )

    averages = [event(50, "cpu"), event(50, "cuda"), event(30, "cuda"), event(80, "cuda", True)]
    assert attribution.device_seconds(averages, "cpu") == pytest.approx(80e-6)


def test_a_tree_without_a_device_has_no_shares():
    tree = rank_trace(read(op("aten::mm", 0, 5)), "made.json")[0].tree
    assert attribution.shares(tree) is None


def run(median, low=None, high=None):
    return coverage.Measured(median, low, high)


def test_an_interval_is_held_against_the_median_of_the_other_processes():
    runs = [run(1.0, 0.9, 1.1), run(1.1, 1.05, 1.2), run(1.2, 1.0, 1.3)]
    # The others' medians: 1.15, 1.1, 1.05.
    assert coverage.held(runs) == 2
    line = coverage.counted("m", runs)
    assert (line.verdict, line.figures["held"]) == ("measured", 2)  # of too few
    assert line.figures["spread"] == pytest.approx(0.2)
    assert coverage.counted("m", [*runs, run(1.0, 0.9, 1.2)]).verdict == "missed"
    assert coverage.counted("m", [run(1.0, 0.9, 1.1)] * 4).verdict == "met"


def test_runs_that_claim_no_interval_are_not_judged():
    line = coverage.counted("m", [run(1.0), run(1.1)] * 2)
    assert line.verdict == "measured"
    assert "4 runs claim no interval" in line.note


def test_rows_of_intervals_are_kept_in_a_file(tmp_path, monkeypatch):
    runs = iter([run(1.0, 0.9, 1.1), run(1.05)])
    monkeypatch.setattr(coverage, "once", lambda *_: next(runs))
    file = tmp_path / "state" / "intervals.jsonl"
    (first,), (second,) = (list(coverage.lines(Machine("cpu"), file)) for _ in range(2))
    assert (first.figures["runs"], second.figures["runs"], second.figures["held"]) == (1, 2, 1)


def test_latency_is_near_or_not_on_each_clock():
    medians = {"host": 1.0, "loop": 1.029, "timer": 0.5, "device": 0.9, "events": 0.8}
    host, timer, device = latency.compared("m", medians)
    assert (host.verdict, timer.verdict, device.verdict) == ("met", "measured", "missed")
    del medians["device"]
    assert [line.verdict for line in latency.compared("m", medians)][-1] == "missed"
    del medians["events"]
    assert [line.verdict for line in latency.compared("m", medians)][-1] == "not run"


def test_the_event_loop_reads_the_events_around_each_call():
    class Cuda:
        """Each call takes as long as its number, in ms; the host launches it at once."""

        now = done = 0.0

        def synchronize(self):
            self.now = self.done

        def Event(self, *, enable_timing):
            event = SimpleNamespace(at=None)
            event.record = lambda: setattr(event, "at", self.done)
            event.elapsed_time = lambda other: other.at - event.at
            return event

    cuda, lengths = Cuda(), iter([5.0, 1.0, 3.0])

    def call():
        cuda.done += next(lengths)

    assert latency.event_loop(call, 3, cuda) == pytest.approx(3e-3)


def test_tables_agree_by_name_and_calls():
    ours = {"mm": tables.Used(2, 3e-3), "add": tables.Used(1, 1e-3), "x": tables.Used(1, 0)}
    beside = {"mm": tables.Used(2, 3e-3), "add": tables.Used(2, 1e-3)}
    found = tables.agreement(ours, beside)
    assert (found.names, found.same_calls, found.differing) == (3, 1, ("add", "x"))
    assert found.share == pytest.approx(1 / 3)
    assert tables.compared("m", ours, beside).verdict == "missed"
    assert tables.compared("m", beside, beside).verdict == "met"
    assert tables.compared("m", {}, {}).verdict == "missed"
    slower = {"mm": tables.Used(2, 4e-3), "add": tables.Used(2, 1e-3)}
    assert tables.compared("m", slower, beside).verdict == "missed"


def test_kernels_of_several_launch_configurations_are_one():
    found = tables.of_kernels(rank_trace(read(
        launched("gemm", 100, 50, at=10, grid=[1, 1, 1]),
        launched("gemm", 200, 20, at=20, grid=[2, 1, 1]),
    ), "made.json")[0])  # fmt: skip
    assert found == {"gemm": tables.Used(2, pytest.approx(70e-6))}


def test_the_cost_of_recording_is_beside_the_bare_steps_around_it():
    rounds = [(1.0, 1.3, 1.0), (2.0, 2.2, 2.0), (1.0, 1.2, 1.0)]
    assert recording_cost.ratio(rounds) == pytest.approx(1.2)
    assert recording_cost.compared("m", 1.2, 1.1).verdict == "met"
    assert recording_cost.compared("m", 1.3, 1.1).verdict == "missed"


STATS = {
    "allocated_bytes.all.peak": 5000,
    "allocated_bytes.all.current": 2000,
    "reserved_bytes.all.peak": 9000,
    "reserved_bytes.all.current": 8000,
    "active_bytes.all.current": 2500,
    "inactive_split_bytes.all.current": 700,
    "requested_bytes.all.current": 1900,
    "requested_bytes.all.peak": 4500,
}


def test_memory_is_compared_to_the_byte():
    theirs = memory.account(STATS)
    assert theirs == (5000, 9000, 5500, 700)
    fragmentation = Fragmentation(
        internal=0, external=700, reserved_unused=5500, largest_free=None, total_free=None
    )
    ours = SimpleNamespace(peak=5000, reserved=9001, fragmentation=fragmentation)
    lines = {line.of: line for line in memory.compared("m", ours, theirs)}
    verdicts = {of: line.verdict for of, line in lines.items()}
    assert verdicts == {
        "m: peak": "met",
        "m: reserved": "missed",
        "m: reserved and unused": "met",
        "m: inactive split": "met",
    }
    assert "(+1 B)" in lines["m: reserved"].beside


def test_memory_that_is_not_known_is_missed():
    ours = SimpleNamespace(peak=1, reserved=None, fragmentation=None)
    verdicts = [line.verdict for line in memory.compared("m", ours, memory.account(STATS))]
    assert verdicts == ["missed"] * 4


def test_a_snapshot_is_compared_with_the_statistics():
    device = SimpleNamespace(
        allocated=2000,
        reserved=8000,
        requested=1900,
        fragmentation=SimpleNamespace(split=700),
        peak=SimpleNamespace(bytes=4499),
    )
    verdicts = [line.verdict for line in snapshots.compared(device, STATS)]
    assert verdicts == ["met"] * 4 + ["missed"]
    device.peak = None
    assert [line.verdict for line in snapshots.compared(device, STATS)][-1] == "missed"


def roof(source, peaks, bandwidth):
    point = BandwidthPoint(working_set=1, bytes_per_second=bandwidth)
    return Roofs(device="a GPU", source=source, method="", peaks=peaks, bandwidth=(point,))


def test_a_roof_is_between_half_of_the_published_peak_and_all_of_it():
    peaks = {"bfloat16": 600e12, "float32": 70e12, "int8": 1e12}
    published = roof("datasheet", {"bfloat16": 989e12, "float32": 67e12}, 4.8e12)
    lines = list(roofs.compared(roof("measured", peaks, 4.2e12), published))
    assert [line.verdict for line in lines] == ["met", "missed", "measured", "met"]
    assert "61%" in lines[0].beside
    unknown = roofs.compared(roof("measured", peaks, 4.2e12), None)
    assert {line.verdict for line in unknown} == {"measured"}


def test_thirty_operators_have_a_bound_below_their_time():
    assert len(operators.cases("cpu", 64)) == 30
    cached = operators.Bounded("add", 1.05e-6, 1e-6, "memory", "memory")
    wrong = operators.Bounded("mm", 2e-6, 1e-6, "compute", "compute")
    unbounded = operators.Bounded("x", 0.0, 1e-6, None, "memory")
    unknown = operators.Bounded("x", 5e-7, 1e-6, None, "compute")
    other = operators.Bounded("x", 5e-7, 1e-6, "overhead", "compute")
    verdicts = [operators.told(one).verdict for one in (cached, wrong, unbounded, unknown, other)]
    assert verdicts == ["met"] + ["missed"] * 4
    line = operators.together([cached, other, unbounded])
    assert (line.verdict, line.figures) == ("missed", {"known": 2, "right": 1})
    assert operators.together([cached]).verdict == "met"


def test_the_work_of_a_llama_by_hand():
    """One layer of 8 wide, 2 heads (1 of keys), 16 inside, 10 words; 3 tokens in 2 sequences."""
    shape = mfu.Shape(1, 8, 16, 2, 1, 10)
    # q 8×8, k and v 8×4, o 8×8, gate and up and down 8×16.
    weights = 64 + 2 * 32 + 64 + 3 * 128
    scores = 2 * (2 * 3 * 3 * 8) * 2
    assert mfu.forward_flops(shape, 2, 3, head=False) == 2 * weights * 6 + scores
    more = mfu.forward_flops(shape, 2, 3, head=True) - mfu.forward_flops(shape, 2, 3, head=False)
    assert more == 2 * 8 * 10 * 6
    # 2 angles of a head 4 wide, at each of 6 positions.
    assert mfu.angle_flops(shape, 2, 3) == 2 * 2 * 6
    verdicts = [mfu.counted(ours, 100, 24).verdict for ours in (100, 124, 112)]
    assert verdicts == ["met", "met", "missed"]
    assert mfu.utilisation(1e12, 0.01, 1e15) == pytest.approx(0.1)
    assert mfu.utilised(0.41, 0.40).verdict == "missed"
    assert mfu.utilised(0.403, 0.40).verdict == "met"


def sample(time, power):
    return GpuSample(time=time, utilization=0.9, memory=1, power=power, clock=1e9)


def test_energy_is_the_area_under_the_power_readings():
    series = [sample(0.0, 100), sample(1.0, 300), sample(2.0, None), sample(3.0, 300)]
    assert power.energy(series) == pytest.approx(200 + 600)
    assert power.energy(series[:1]) is None
    assert power.energies(800, 850).verdict == "met"
    assert power.energies(800, 900).verdict == "missed"
    assert power.energies(800, None).verdict == "measured"
    assert power.energies(None, 900).verdict == "not run"


def test_a_series_needs_readings_of_every_figure():
    use = Use(mean=0.9, max=1.0)
    gpu = GpuUse(
        index=0, name="a GPU", utilization=use, memory=use, power=use, temperature=use, clock=use,
        throttled=("power cap",), samples=tuple(sample(t / 10, 1) for t in range(20)),
    )  # fmt: skip
    series, throttling = power.told(gpu, 2.0)
    assert (series.verdict, throttling.verdict, throttling.ours) == ("met", "met", "power cap")
    series, _ = power.told(gpu, 20.0)
    assert series.verdict == "missed"
    silent = msgspec.structs.replace(gpu, power=None, throttled=None)
    series, throttling = power.told(silent, 2.0)
    assert (series.verdict, series.note) == ("missed", "without power")
    assert throttling.verdict == "missed"


def test_the_energy_of_a_call_is_beside_the_counter_by_hand():
    assert power.each(0.9, 1.0).verdict == "met"
    assert power.each(0.8, 1.0).verdict == "missed"
    unknown = power.each(None, 1.0, "It did not move.")
    assert (unknown.verdict, unknown.note) == ("missed", "It did not move.")
    assert power.each(0.9, 0.0).verdict == power.each(0.9, None).verdict == "missed"


def test_the_counter_of_energy_may_be_absent():
    class Error(Exception):
        pass

    def fails(handle):
        raise Error

    counter = power.Counter(SimpleNamespace(on_gpu=False))
    assert counter.joules() is None
    counter._handle = 1
    energies = {"nvmlDeviceGetTotalEnergyConsumption": lambda handle: 2500, "NVMLError": Error}
    counter._nvml = SimpleNamespace(**energies)
    assert counter.joules() == pytest.approx(2.5)
    counter._nvml = SimpleNamespace(**energies | {"nvmlDeviceGetTotalEnergyConsumption": fails})
    assert counter.joules() is None


@pytest.mark.parametrize(
    ("faulty", "clean", "verdict"),
    [
        ({"idle-host"}, set(), "met"),
        ({"idle-host"}, {"idle-host"}, "missed"),
        ({"synchronisation"}, set(), "missed"),
    ],
)
def test_a_fault_is_named_where_it_is_and_only_there(faulty, clean, verdict):
    fault = faults.Fault("tiny kernels", "idle-host", lambda *_: set())
    assert faults.verdict(fault, faulty, clean).verdict == verdict


def test_a_fault_that_fails_costs_its_own_line(monkeypatch):
    def fails(machine, faulty):
        raise RuntimeError("no such kernel")

    good = faults.Fault("good", "named", lambda _, faulty: {"named"} if faulty else set())
    broken, other = faults.Fault("broken", "x", fails), faults.Fault("other", "x", good.names)
    monkeypatch.setattr(faults, "FAULTS", {"made": (broken, good, other)})
    lines = list(faults.lines(SimpleNamespace(on_gpu=True), "made"))
    assert [line.verdict for line in lines] == ["failed", "met", "missed"]
    assert lines[0].note == "RuntimeError: no such kernel"
    assert lines[2].note == "named instead: named"
    absent = list(faults.lines(SimpleNamespace(on_gpu=False), "made"))
    assert {(line.verdict, line.note) for line in absent} == {("not run", "no GPU")}


def test_there_are_ten_faults_and_more():
    titles = [fault.title for kind in faults.FAULTS.values() for fault in kind]
    assert len(set(titles)) == len(titles) >= 10
    kinds = {row.arguments[0] for row in ROWS if row.module == "faults"}
    assert kinds == set(faults.FAULTS)


def test_recordings_keep_below_their_limit(tmp_path):
    for name, size in (("a", 100), ("b", 300), ("c", 200)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert recordings.trimmed(tmp_path, 300) == {"a": 100, "c": 200}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]


def test_a_snapshot_to_keep_says_nothing_of_folders():
    frames = [{"filename": "/home/somebody/train.py", "line": 3, "name": "step"}]
    kept = recordings.without_folders({"segments": [{"frames": frames, "address": 4096}]})
    assert b"somebody" not in pickle.dumps(kept)
    assert kept["segments"][0] == {
        "frames": [{"filename": "train.py", "line": 3, "name": "step"}],
        "address": 4096,
    }


def test_a_test_s_verdict_is_read_as_it_is_printed():
    output = iter([
        "tests/gpu/test_a.py::test_b PASSED\n",
        "tests/gpu/test_a.py::test_c[tf32] FAILED — assert 1 == 2\n",
        "tests/gpu/test_a.py::test_d SKIPPED — torch sees no GPU (torch sees no GPU)\n",
        "tests/gpu/test_a.py:10: AssertionError\n",
    ])  # fmt: skip
    lines = gpu_tests.told(output)
    passed = next(lines)
    assert (passed.of, passed.verdict) == ("test_b", "met")
    assert [(line.of, line.verdict, line.note) for line in lines] == [
        ("test_c[tf32]", "failed", "assert 1 == 2"),
        ("test_d", "not run", "torch sees no GPU (torch sees no GPU)"),
    ]
    assert set(gpu_tests.files()) == {row.arguments[0] for row in ROWS if row.module == "gpu_tests"}


def test_both_stages_of_generation_are_beside_generate_by_hand():
    ours, beside = generation.Stages(0.0102, 0.0011), generation.Stages(0.01, 0.001)
    assert [line.verdict for line in generation.compared(ours, beside)] == ["met", "missed"]
    unknown = generation.compared(generation.Stages(None, None), beside)
    assert [line.verdict for line in unknown] == ["missed"] * 2
    assert generation.bounded(2.1e-3, 4_000_000, 2e9).verdict == "met"
    assert generation.bounded(1.9e-3, 4_000_000, 2e9).verdict == "missed"
    assert generation.bounded(2.1e-3, 4_000_000, None).verdict == "missed"
    assert generation.bounded(None, 4_000_000, 2e9).verdict == "missed"


def test_generate_by_hand_is_called_for_one_token_and_for_several():
    calls = []

    def generate(ids, *, max_new_tokens, min_new_tokens, do_sample):
        calls.append((tuple(ids.shape), max_new_tokens))

    generation.by_hand(Machine("cpu", tiny=True), SimpleNamespace(generate=generate), 8, 4)
    assert calls == [((1, 8), 1), ((1, 8), 4)] * 3


def test_what_on_oom_writes_is_beside_the_program_s_own_figures():
    event = SimpleNamespace(requested=2**25, total=2**25 - 2**20, layer="1 (Keeps)")
    same = out_of_memory.compared(event, 2**25 - 2**20, {"oom-limit"}, 2**25, 2**25 - 2**20)
    assert [line.verdict for line in same] == ["met"] * 5
    event = SimpleNamespace(requested=None, total=1, layer="")
    other = out_of_memory.compared(event, None, {"kept"}, 2**25, 2)
    assert [line.verdict for line in other] == ["missed"] * 5


def test_recordings_are_each_there():
    kept = recordings.told({"training.json.gz": 5, "recorded.json": 5}, recordings.FILES)
    assert kept.verdict == "met"
    lacking = recordings.told({"training.json.gz": 5}, recordings.FILES)
    assert (lacking.verdict, lacking.note) == ("missed", "without recorded.json")
    assert (
        recordings.told({"training.json.gz": 2**24 + 1}, recordings.FILES[:1]).verdict == "missed"
    )
