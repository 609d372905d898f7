"""Every report says how good the roofs are where they are not."""

import msgspec
import pytest
from tests.support import pages
from tests.support.cases import few_quick
from tests.support.operator_costs import ROOFS, cost, latency, row

from torchgauge.analyze.findings.record_evidence import Evidence
from torchgauge.analyze.findings.share_rules import farthest_from_roof
from torchgauge.analyze.work.bottleneck import bottleneck
from torchgauge.analyze.work.lower_bound import roofline
from torchgauge.report.page import page_profile
from torchgauge.report.page import page_profile as page_roofline
from torchgauge.report.page import page_series as page_method

WORK = cost(row(matmul_flops=10**9, bytes=10**6))


def profile(**quality):
    roofs = msgspec.structs.replace(ROOFS, **quality)
    timed = latency(0.0125)
    tree = pages.tree()
    rows = [msgspec.structs.replace(row, lower_bound=1_000) for row in tree.rows]
    return pages.with_tree(
        cost=WORK,
        latency=timed,
        roofline=roofline(WORK, timed, roofs),
        bottleneck=bottleneck(WORK, timed, roofs),
        tree=msgspec.structs.replace(tree, rows=tuple(rows)),
    )


def reports(record):
    return {
        "summary": " ".join(str(record).split()),
        "markdown": record.to_markdown(),
        "overview": str(page_profile.figures(record)),
        "roofline": str(page_roofline.roofline(record)["roofs"]),
        "method": str(dict(page_method.profile_method(record)["parts"])["Roofs"]),
        "finding": _roof_evidence(record),
    }


def _roof_evidence(record):
    (finding,) = farthest_from_roof.find(Evidence.from_record(record))
    return finding.evidence


@pytest.mark.parametrize("report", few_quick(reports(profile()), 2))
def test_a_report_says_that_roofs_are_quick_and_of_a_busy_machine(report):
    good = reports(profile(quality="quiet"))[report]
    assert "busy machine" not in good
    assert "quick" not in good
    poor = reports(profile(quality="busy", extent="quick", other=1.3))[report]
    assert "quick, busy machine" in poor


def test_a_summary_says_why_they_are_not_better():
    text = reports(profile(quality="busy", extent="quick", other=1.3))["summary"]
    assert "Others took 1.30 cores while the roofs were measured" in text
    assert "`torchgauge profile TARGET --roofs` refines them" in text
