import msgspec
import pytest
from tests.support.operator_costs import MIB, ROOFS

from torchgauge.analyze.work.roof_quality import combined, description, disturbed, reservations
from torchgauge.records.work.roofline import BandwidthPoint

QUIET = msgspec.structs.replace(ROOFS, quality="quiet", other=0.0, created="quiet")


def measured(quality="quiet", extent="full", **figures):
    return msgspec.structs.replace(
        QUIET, quality=quality, extent=extent, created=f"{quality} {extent}", **figures
    )


@pytest.mark.parametrize(
    ("kept", "latest", "better"),
    [
        (("quiet", "full"), ("busy", "full"), "quiet full"),
        (("quiet", "full"), ("quiet", "quick"), "quiet full"),
        (("quiet", "quick"), ("busy", "full"), "quiet quick"),
        (("busy", "full"), ("quiet", "quick"), "quiet quick"),
        (("busy", "quick"), ("busy", "full"), "busy full"),
        (("quiet", "quick"), ("quiet", "full"), "quiet full"),
    ],
)
def test_the_better_measurement_says_how_good_they_are(kept, latest, better):
    assert combined(measured(*kept), measured(*latest)).created == better


def test_the_faster_of_each_figure_counts():
    kept = measured(
        "busy", peaks={"float32": 80e9, "int8": 9e9}, libraries={"float32": "torch"}, dispatch=5e-6
    )
    faster = {"float32": 100e9, "bfloat16": 1e9}
    latest = measured("busy", peaks=faster, libraries={"float32": "numpy"}, dispatch=3e-6)
    both = combined(kept, latest)
    assert both.peaks == {"float32": 100e9, "int8": 9e9, "bfloat16": 1e9}
    assert both.libraries == {"float32": "numpy"}
    assert both.dispatch == 3e-6
    assert combined(latest, kept).peaks == both.peaks


def test_a_quiet_and_full_measurement_stands_alone():
    slower = measured(peaks={"float32": 1e9})
    assert combined(measured(), slower) == slower


def curve(*points):
    return tuple(BandwidthPoint(working_set=size, bytes_per_second=rate) for size, rate in points)


def test_between_the_sizes_of_a_quick_measurement_nothing_is_made_up():
    # Of 64 MiB the quick one has shown no more than the rate of 128 MiB.
    full = measured("busy", bandwidth=curve((MIB, 50e9), (64 * MIB, 20e9), (256 * MIB, 5e9)))
    quick = measured(extent="quick", bandwidth=curve((MIB, 90e9), (128 * MIB, 10e9)))
    assert combined(full, quick).bandwidth == curve(
        (MIB, 90e9), (64 * MIB, 20e9), (128 * MIB, 10e9), (256 * MIB, 5e9)
    )


def test_what_is_not_good_says_why():
    assert reservations(measured(spread=0.05)) == ()
    assert description(measured()) == "measured"
    (busy,) = reservations(measured("busy", other=1.3))
    assert "1.30 cores" in busy
    assert "--roofs" in busy
    (quick,) = reservations(measured(extent="quick"))
    assert "quickly" in quick
    (spread,) = reservations(measured(spread=0.4))
    assert "40 %" in spread
    assert description(measured("busy", "quick")) == "measured, quick, busy machine"
    printed = msgspec.structs.replace(ROOFS, source="datasheet")
    assert description(printed) == "datasheet"
    assert "higher" in reservations(printed)[0]


def test_roofs_of_a_record_without_quality_are_judged_by_the_load():
    assert disturbed(msgspec.structs.replace(ROOFS, other=1.5))
    assert not disturbed(ROOFS)
