"""The least time of a step, by hand; groups of ranks; and when a rank fits."""

import pytest
from msgspec.structs import replace
from tests.support import parallels

from torchgauge.analyze.parallel.rank_lifetimes import groups_of
from torchgauge.analyze.parallel.step_bound import device_fit, step_bound
from torchgauge.records.parallel.parallel import CollectiveRow, Link, Links, WorkRow
from torchgauge.records.work.roofline import BandwidthPoint, Roofs

ROOFS = Roofs(
    device="d", source="datasheet", method="", peaks={"bfloat16": 1e12}, memory=100 * 10**9,
    bandwidth=(BandwidthPoint(working_set=1, bytes_per_second=1e15),),
)  # fmt: skip
WITHIN = Link(name="within", bytes_per_second=100.0, source="")
LINKS = Links(
    devices=8, within=WITHIN, between=Link(name="between", bytes_per_second=10.0, source="")
)
PRODUCTS = WorkRow(
    phase="forward", operator="aten::mm", dtype="bfloat16", calls=1,
    matmul_flops=4 * 10**12, causal_matmul_flops=2 * 10**12,
)  # fmt: skip


def collective(group, ranks, size, exposure="exposed"):
    return CollectiveRow(
        kind="all_gather", group=group, ranks=ranks, phase="forward", dtype="bfloat16", calls=1,
        bytes=size, exposure=exposure,
    )  # fmt: skip


def bound(rows, dims, links=LINKS):
    memory = replace(parallels.memory(), resting={}, largest={})
    return step_bound(memory, [PRODUCTS], rows, ROOFS, links, groups_of(dims, 0))


def test_groups_are_named_by_the_dimensions_that_they_extend_along():
    groups = groups_of((("fsdp", 2), ("tp", 3)), 4)
    assert groups == {"fsdp": (1, 4), "tp": (3, 4, 5), "fsdp×tp": (0, 1, 2, 3, 4, 5)}


def test_a_group_on_one_machine_takes_its_links():
    result = bound([collective("tp", 4, 400)], (("tp", 4),))
    assert result.exposed == pytest.approx(400 * 3 / 4 / 100)
    assert result.seconds == pytest.approx(2.0 + 3.0)  # causal products at their triangle


def test_ranks_of_a_machine_share_what_it_takes_from_other_machines():
    result = bound([collective("fsdp", 16, 1600)], (("fsdp", 16),))
    assert result.links[0].machines == 2
    assert result.exposed == pytest.approx(1600 * 8 / 16 / 8 / 10)  # half of it over 8 cards


def test_ranks_alone_on_their_machines_take_all_of_it_over_their_own_card():
    dims = (("fsdp", 2), ("tp", 8))
    assert bound([collective("fsdp", 2, 100)], dims).exposed == pytest.approx(100 / 2 / 10)


def test_overlappable_collectives_bound_the_step_only_where_they_take_longer():
    assert bound([collective("tp", 4, 40, "overlappable")], (("tp", 4),)).seconds == 2.0
    long = bound([collective("tp", 4, 4000, "overlappable")], (("tp", 4),))
    assert long.seconds == pytest.approx(30.0)


def test_without_rates_of_links_the_bound_lacks_a_part():
    result = bound([collective("tp", 4, 400)], (("tp", 4),), links=None)
    assert result.at_least
    assert result.seconds == 2.0


@pytest.mark.parametrize(
    ("peak", "reserved", "verdict"),
    [(60, 79, "fits"), (60, 80, "may fit"), (107, 120, "may fit"), (108, 120, "does not fit")],
)
def test_fits_is_said_with_a_fifth_to_spare_and_the_opposite_of_bytes_alive(
    peak, reserved, verdict
):
    memory = replace(parallels.memory(), peak=peak * 10**9, reserved=reserved * 10**9)
    assert device_fit(memory, ROOFS).verdict == verdict
