"""Verdicts made by hand, one of each outcome, with names that break careless writers."""

from tests.support.exported_records import ODD, target

from torchgauge.records.comparison import Comparison, Difference, Side
from torchgauge.records.record import Interval, MeasurementWarning
from torchgauge.records.verdict import Block, Limit, Ruling, Tolerance, Verdict, overall

LATENCY = Tolerance(metric="latency", accepted=0.01, refused=0.03)


def side(label, **changes):
    known = {"target": target(spec="nets/model.py:make"), "created": "2026-01-02T03:04:05+00:00",
             "machine": "A CPU", "processes": 20}  # fmt: skip
    return Side(label=label, **{**known, **changes})


def ruling(**changes):
    """10.2 ms → 11.4 ms under 1 % and 3 %: fails."""
    known = {
        "metric": "latency", "outcome": "fail", "how": "measured", "unit": "s",
        "baseline": 0.0102, "current": 0.0114, "change": 0.1176,
        "interval": Interval(low=0.091, high=0.15), "tolerance": LATENCY,
        "method": "one-sided t bounds of the mean of d",
    }  # fmt: skip
    return Ruling(**{**known, **changes})


EXACT = ruling(
    metric="flops", outcome="pass", how="counted", unit="", baseline=4_000_000_000,
    current=4_000_000_000, change=0.0, interval=None,
    tolerance=Tolerance(metric="flops", accepted=0.0, refused=0.0), method="exact",
)  # fmt: skip
LIMITED = ruling(
    metric="p99", outcome="pass", current=0.0199, baseline=None, change=None,
    interval=Interval(low=0.0188, high=0.0212), tolerance=None, borderline=True,
    limit=Limit(metric="p99", value=0.020, text="p99:20ms"), method="the estimate",
)  # fmt: skip
RATE = ruling(
    metric="throughput", outcome="fail", unit="1/s", current=912.3, baseline=None, change=None,
    interval=Interval(low=901.0, high=920.0), tolerance=None,
    limit=Limit(metric="throughput", value=1000, text="throughput:1000samples/s", is_minimum=True,
                rate_unit="samples"), method="the estimate against the limit",
)  # fmt: skip
UNDECIDED = ruling(
    outcome="inconclusive", current=0.0104, change=0.0196, needed=24,
    interval=Interval(low=-0.004, high=0.044),
)  # fmt: skip
UNKNOWN = ruling(
    metric="flops", outcome="inconclusive", how="counted", unit="", current=608, baseline=None,
    change=None, interval=None, tolerance=None, at_least=True,
    limit=Limit(metric="flops", value=1e9, text="flops:1G"),
    reason="the total lacks operators or parameters that are not known", method="",
)  # fmt: skip
APART = ruling(
    outcome="not comparable", change=None, interval=None, reason="the machines differ",
    method="",
)  # fmt: skip


def verdict(*rulings, **changes):
    return Verdict(**{"outcome": overall(rulings), "rulings": rulings, **changes})


def paired(*rulings, **changes):
    compared = Comparison(
        baseline=side("main", commit="0123456789abcdef"), current=side("work tree"), paired=True
    )
    block = Block(medians=((0.01,), (0.011,), (0.011,), (0.01,)), difference=0.1)
    known = {"comparison": compared, "blocks": (block,) * 8, "looks": 2, "duration": 183.0}
    return verdict(*rulings, **{**known, **changes})


def failed():
    return paired(
        EXACT, ruling(), LIMITED, RATE,
        regressed_layers=(
            "layer1.0.conv2 (Conv2d) +12 % [9, 15]", "layer1.0.bn2 (BatchNorm2d) +3 % [1, 5]",
        ),
        warnings=(MeasurementWarning(id="noisy", message="The machine is noisy."),),
    )  # fmt: skip


def odd():
    """Everything a user names is odd."""
    differs = Difference(part="software", name=ODD, baseline=ODD, current=ODD)
    compared = Comparison(
        baseline=side(ODD, machine=ODD), current=side(ODD, target=target()), differences=(differs,)
    )
    return verdict(
        ruling(metric=ODD, reason=ODD, method=ODD), comparison=compared, regressed_layers=(ODD,),
        warnings=(MeasurementWarning(id="odd", message=ODD, remedy=ODD),),
    )  # fmt: skip


def every():
    return {
        "pass": verdict(EXACT, LIMITED),
        "fail": failed(),
        "inconclusive": paired(EXACT, UNDECIDED, UNKNOWN),
        "not comparable": verdict(EXACT, APART),
        "odd": odd(),
        "empty": verdict(),
    }
