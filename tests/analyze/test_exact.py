"""Exact metrics under a tolerance."""

import pytest

from torchgauge.analyze.exact import exact_ruling
from torchgauge.model.comparison import Change
from torchgauge.model.verdict import Tolerance


def change(old, new, judgement="worse", reason=""):
    relative = new / old - 1 if old and new is not None else None
    return Change(
        metric="flops", unit="", how="counted", better="lower", exact=True, baseline=old,
        current=new, judgement=judgement, change=relative, reason=reason,
    )  # fmt: skip


def ruled(found, accepted=0.0):
    return exact_ruling(found, Tolerance(metric="flops", accepted=accepted, refused=accepted))


@pytest.mark.parametrize(
    ("old", "new", "accepted", "outcome"),
    [
        (100, 100, 0.0, "pass"),
        (100, 101, 0.0, "fail"),
        (100, 101, 0.02, "pass"),
        (100, 103, 0.02, "fail"),
        (100, 50, 0.0, "pass"),
        (0, 1, 0.5, "fail"),
        (0, 0, 0.0, "pass"),
    ],
)
def test_more_than_is_accepted_fails(old, new, accepted, outcome):
    assert ruled(change(old, new), accepted).outcome == outcome


def test_what_is_unknown_never_passes():
    assert ruled(change(None, 3, "unknown", "the baseline does not have it")).outcome == (
        "inconclusive"
    )
    assert ruled(change(3, 3, "unknown", "not comparable: batch differs")).reason == (
        "not comparable: batch differs"
    )


def test_an_at_least_is_said():
    assert ruled(change(3, 3, "same", "at least: operators without a formula")).at_least
