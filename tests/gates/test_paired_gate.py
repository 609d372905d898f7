"""The gate of two builds, on records and blocks that a test makes."""

import math
import random

import msgspec
import pytest
from tests.support import records

from torchgauge import InputError
from torchgauge.analyze.latency.noise import workload
from torchgauge.device import calibration
from torchgauge.errors import MeasurementError
from torchgauge.gates import paired_gate
from torchgauge.gates.gate_options import GateOptions
from torchgauge.gates.paired_gate import gate_builds, pace_for
from torchgauge.measure import forward
from torchgauge.measure.latency import blocks
from torchgauge.measure.latency import noise as noise_run
from torchgauge.measure.latency.blocks import Timed
from torchgauge.measure.latency.latency_options import LatencyOptions
from torchgauge.measure.processes import separate_process as apart
from torchgauge.measure.processes.waiting_process import Build
from torchgauge.progress import Silent
from torchgauge.records import codec
from torchgauge.records.doctor import NoiseRun
from torchgauge.records.record import MeasurementWarning
from torchgauge.records.work.cost import Cost, CostNode, CostRow
from torchgauge.targets.builds.source import Source

NOISE = (0.001, -0.001, 0.002, -0.002)


def record(flops=1_000, parameters=100):
    plain = records.profile()
    return msgspec.structs.replace(
        plain,
        size=msgspec.structs.replace(plain.size, parameters=parameters),
        cost=Cost(
            nodes=(CostNode(name="Net", path="", kind="Net", parent=-1, calls=1),),
            rows=(
                CostRow(
                    node=0,
                    operator="mm",
                    phase="forward",
                    dtype="float32",
                    calls=1,
                    matmul_flops=flops,
                ),
            ),
            backward=False,
            counted_on="meta",
        ),
    )


class Bench:
    """Two builds whose times we decide: B is slower by `d`, with `noise` times a fixed pattern."""

    def __init__(
        self, monkeypatch, d=0.0, noise=1.0, current=None, then=None, after=math.inf, others=0.0
    ):
        self.d, self.noise, self.made, self.then, self.after = d, noise, 0, then, after
        self.others, self.random = others, random.Random(1)
        self.paces = []
        sides = {"base": record(), "current": current or record()}
        monkeypatch.setattr(paired_gate, "first_look", lambda build, *_: sides[build.label])
        monkeypatch.setattr(blocks, "block", self)
        monkeypatch.setattr(noise_run, "watch_share", lambda: lambda: others)

    def __call__(self, _a, _b, pace):
        if self.made >= self.after:
            raise self.then
        self.paces.append(pace)
        e = self.noise * NOISE[self.made % 4]
        self.made += 1
        undisturbed = [1e-3 * math.exp(log) for log in (-e, self.d + e, self.d, e)]
        times = [self.slowed() * seconds for seconds in undisturbed]
        own = tuple({"": seconds} for seconds in times)
        visits = tuple((value,) * 4 for value in times)
        fastest = tuple({"": seconds} for seconds in undisturbed)
        rates = tuple((8 / seconds,) * 4 for seconds in times)
        figures = {"latency": visits, "fastest": visits, "throughput": rates}
        return Timed(figures, own, fastest, duration=2.0)

    def slowed(self):
        """Return how many times as long a call takes beside the others' work."""
        return 1.0 if self.others < 0.1 else self.random.uniform(1.0, 60.0)


def gated(*metrics, **options):
    source = Source.of_object(print, None)
    builds = [Build(source, LatencyOptions(), None, name) for name in ("base", "current")]
    return gate_builds(*builds, GateOptions.parsed(metrics, **options), Silent())


def ruling(verdict, metric):
    return next(one for one in verdict.rulings if one.metric == metric)


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path))


def test_the_same_passes(monkeypatch):
    bench = Bench(monkeypatch)
    verdict = gated()
    assert (verdict.outcome, bench.made, verdict.looks) == ("pass", 8, 1)
    assert {one.metric for one in verdict.rulings} == {"params", "flops", "memory", "latency"}
    assert verdict.regressed_layers == ()
    assert codec.decode(codec.encode(verdict)) == verdict


def test_a_slower_build_fails_by_how_much(monkeypatch):
    Bench(monkeypatch, d=0.1)
    verdict = gated()
    assert verdict.outcome == "fail"
    assert ruling(verdict, "latency").change == pytest.approx(math.expm1(0.1), rel=0.02)
    assert verdict.comparison.paired
    change = verdict.comparison.change_of("latency")
    assert (change.judgement, change.baseline) == ("worse", pytest.approx(1e-3))
    assert len(verdict.blocks) == 8
    assert verdict.blocks[0].difference == pytest.approx(0.1005)


def test_other_load_while_the_blocks_ran_is_a_warning(monkeypatch):
    Bench(monkeypatch, others=0.4)
    (warning,) = gated().warnings
    assert (warning.id, warning.probe) == ("other-load", "gate")
    assert "40 %" in warning.message
    Bench(monkeypatch, others=0.05)
    assert gated().warnings == ()


@pytest.mark.parametrize(("d", "outcome"), [(0.0, "pass"), (0.1, "fail")])
def test_a_busy_machine_is_judged_by_what_others_did_not_disturb(monkeypatch, d, outcome):
    """Typical calls take up to 60 times as long, in any process: they would decide nothing."""
    Bench(monkeypatch, d=d, others=0.8)
    verdict = gated("latency", "throughput")
    latency = ruling(verdict, "latency")
    assert (verdict.outcome, latency.outcome) == (outcome, outcome)
    assert (latency.undisturbed, latency.how) == (True, "estimated")
    assert latency.change == pytest.approx(math.expm1(d), abs=0.003)
    assert latency.baseline == pytest.approx(1e-3, rel=0.01)
    change = verdict.comparison.change_of("latency")
    assert (change.undisturbed, change.baseline) == (True, latency.baseline)
    assert verdict.comparison.step_change == pytest.approx(1e-3 * math.expm1(d), abs=3e-6)
    rate = ruling(verdict, "throughput")
    assert (rate.undisturbed, rate.baseline) == (True, pytest.approx(8 / latency.baseline))
    # What was measured stays beside it.
    assert max(verdict.blocks[0].medians)[0] > 2e-3 > max(verdict.blocks[0].undisturbed)


def test_a_gate_that_is_out_of_reach_ends_after_three_blocks(monkeypatch):
    bench = Bench(monkeypatch, noise=100)
    verdict = gated("latency")
    assert (verdict.outcome, bench.made, verdict.looks) == ("inconclusive", 3, 0)
    (warning,) = verdict.warnings
    assert warning.id == "out-of-reach"
    needed = ruling(verdict, "latency").needed
    assert needed > 8 * 16
    assert f"some {needed} would" in warning.message


def test_what_is_undecided_is_extended_once_then_said_to_be(monkeypatch):
    bench = Bench(monkeypatch, d=0.02, noise=20)
    verdict = gated()
    assert (verdict.outcome, bench.made, verdict.looks) == ("inconclusive", 16, 2)
    assert ruling(verdict, "latency").needed > 16


def test_more_work_fails_at_once(monkeypatch):
    bench = Bench(monkeypatch, current=record(flops=1_500))
    verdict = gated()
    assert (verdict.outcome, bench.made) == ("fail", 0)
    assert ruling(verdict, "flops").change == pytest.approx(0.5)
    assert [one.id for one in verdict.warnings] == ["not-timed"]


def test_all_times_anyway(monkeypatch):
    bench = Bench(monkeypatch, current=record(flops=1_500))
    verdict = gated(time_always=True)
    assert (verdict.outcome, bench.made) == ("fail", 8)
    assert ruling(verdict, "latency").outcome == "pass"


def other_inputs():
    """Return a build's record whose target brought a smaller batch than the other one's."""
    plain = record()
    (given, *rest) = plain.target.inputs
    smaller = msgspec.structs.replace(given, shape=(given.shape[0] + 1, *given.shape[1:]))
    target = msgspec.structs.replace(plain.target, inputs=(smaller, *rest))
    return msgspec.structs.replace(plain, target=target)


@pytest.mark.parametrize("d", [-0.5, 0.5])
def test_builds_that_got_other_inputs_are_not_comparable_however_the_times_are(monkeypatch, d):
    bench = Bench(monkeypatch, d=d, current=other_inputs())
    verdict = gated("latency")
    assert (verdict.outcome, bench.made) == ("not comparable", 0)
    assert ruling(verdict, "latency").reason == "not comparable: inputs differ"
    verdict = gated("latency", time_always=True)
    assert (verdict.outcome, bench.made) == ("not comparable", 8)
    change = verdict.comparison.change_of("latency")
    assert (change.judgement, change.reason) == ("unknown", "not comparable: inputs differ")
    assert (change.change, change.interval) == (None, None)
    assert verdict.regressed_layers == ()


def test_what_goes_wrong_in_a_first_look_names_the_build(monkeypatch):
    def dies(*_):
        raise MeasurementError("A process died.", id="child-failed", cause="Exit code 3.")

    monkeypatch.setattr(apart, "profile_in_separate_process", dies)
    with pytest.raises(MeasurementError, match=r"The base build: A process died\.") as caught:
        gated("params")
    assert (caught.value.id, caught.value.cause) == ("child-failed", "Exit code 3.")


def test_exact_metrics_alone_start_no_block(monkeypatch):
    bench = Bench(monkeypatch)
    assert gated("params", "flops").outcome == "pass"
    assert bench.made == 0


def keep(spread, blocks=10):
    """Keep a calibration whose s_d is `spread`."""
    run = NoiseRun(
        created="", workload=workload(record().target), torch="2", threads=2,
        differences=(spread, -spread) * (blocks // 2), medians=(1e-3,) * 4 * blocks, other=0.0,
        duration=30.0 * blocks,
    )  # fmt: skip
    calibration.keep(record().environment.machine.fingerprint, run)


def test_the_calibration_plans_the_blocks(monkeypatch):
    keep(0.02)  # ((3.2415·0.02 ÷ 0.019609))² = 10.93
    bench = Bench(monkeypatch)
    assert gated().outcome == "pass"
    assert bench.made == 11 + 2


def test_a_gate_below_the_noise_floor_is_refused_and_says_what_it_needs(monkeypatch):
    keep(0.05)
    bench = Bench(monkeypatch)
    verdict = gated()
    assert (verdict.outcome, bench.made) == ("inconclusive", 0)
    refused = ruling(verdict, "latency")
    assert refused.needed == math.ceil((3.241516 * 0.05 / math.log(1.03 / 1.01)) ** 2) + 2
    assert "5.0 %" in refused.reason
    assert "40 are allowed" in refused.reason
    assert f"some {refused.needed * 30 / 60:.0f} min" in refused.reason


def test_wider_tolerances_need_fewer_blocks(monkeypatch):
    keep(0.05)
    bench = Bench(monkeypatch)
    assert gated(tolerances=["latency:5%:20%"]).outcome == "pass"
    assert bench.made == 6  # ((3.2415·0.05 ÷ ln(1.20 ÷ 1.05)))² = 1.5, and six at least


def test_ctrl_c_makes_it_inconclusive_with_what_was_measured(monkeypatch):
    Bench(monkeypatch, d=0.5, then=KeyboardInterrupt(), after=4)
    verdict = gated()
    latency = ruling(verdict, "latency")
    assert verdict.outcome == "inconclusive"
    assert latency.change == pytest.approx(math.expm1(0.5), rel=0.02)
    assert latency.reason == "interrupted after 4 of 8 blocks"
    assert "interrupted" in {one.id for one in verdict.warnings}


def test_ctrl_c_in_the_first_block_leaves_the_exact_metrics(monkeypatch):
    Bench(monkeypatch, then=KeyboardInterrupt(), after=1)
    verdict = gated()
    assert ruling(verdict, "latency").reason == "ended after 1 of 8 blocks"
    assert ruling(verdict, "params").outcome == "pass"


def test_a_metric_that_blocks_cannot_have_is_inconclusive(monkeypatch):
    Bench(monkeypatch)
    verdict = gated("latency", "first_call", "p99", "backward")
    reasons = {one.metric: one.reason for one in verdict.rulings}
    assert "at the same time" in reasons["first_call"]
    assert "too few calls" in reasons["p99"]
    assert verdict.outcome == "inconclusive"
    assert ruling(verdict, "latency").outcome == "pass"


def test_notes_of_the_revision_are_on_the_verdict(monkeypatch):
    Bench(monkeypatch)
    source = Source.of_object(print, None)
    builds = [Build(source, LatencyOptions(), None, name) for name in ("base", "current")]
    note = MeasurementWarning(id="base-note", message="Uncommitted.", probe="gate")
    verdict = gate_builds(*builds, GateOptions.parsed(["params"]), Silent(), (note,))
    assert verdict.warnings == (note,)


def test_four_copies_that_do_not_fit_run_one_at_a_time(monkeypatch):
    monkeypatch.setattr(forward, "free_bytes", lambda _: 3e9)
    assert pace_for((record(), record())).concurrent
    monkeypatch.setattr(forward, "free_bytes", lambda _: 2e9)
    assert not pace_for((record(), record())).concurrent
    bench = Bench(monkeypatch)
    verdict = gated()
    assert "one-at-a-time" in {one.id for one in verdict.warnings}
    assert not bench.paces[0].concurrent


def test_limits_are_held_beside(monkeypatch):
    Bench(monkeypatch)
    verdict = gated(thresholds=["params:50"])
    assert verdict.outcome == "fail"
    assert [one.limit.text for one in verdict.rulings if one.limit] == ["params:50"]


def looked(monkeypatch, *limits):
    """Return how the first looks of base and current would have sampled."""
    asked = []
    monkeypatch.setattr(
        apart, "profile_in_separate_process", lambda _s, how, *_: asked.append(how) or record()
    )
    gated("params", thresholds=limits)
    return asked


def test_a_limit_on_a_time_is_held_by_more_than_a_few_calls(monkeypatch):
    base, current = looked(monkeypatch, "latency:1s")
    assert base.iterations == 10
    assert current == LatencyOptions()


def test_a_limit_on_a_percentile_asks_for_the_samples_it_needs(monkeypatch):
    _, current = looked(monkeypatch, "p99:1s", "p90:1s")
    assert current.iterations is None
    assert current.independent == 368


def test_limits_on_counts_need_a_few_calls_alone(monkeypatch):
    assert [one.iterations for one in looked(monkeypatch, "params:50k")] == [10, 10]


@pytest.mark.parametrize("options", [{"blocks": 2}, {"max_blocks": 1}, {"blocks": 50}])
def test_numbers_of_blocks_that_make_no_sense(options):
    with pytest.raises(InputError) as caught:
        GateOptions.parsed(**options)
    assert caught.value.id in ("option-invalid", "option-conflict")


def test_a_tolerance_adds_its_metric():
    found = GateOptions.parsed(tolerances=["throughput:2%:5%", "latency:2%:4%"])
    assert [one.metric for one in found.tolerances] == [
        "params", "flops", "memory", "latency", "throughput",
    ]  # fmt: skip
    assert found.tolerances[3].accepted == 0.02
