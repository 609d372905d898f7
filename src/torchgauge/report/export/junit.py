"""A verdict as JUnit XML, which CI servers show: a test case for each ruling."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

from torchgauge.records.verdict import Ruling, Verdict
from torchgauge.report.content import rulings
from torchgauge.visible import one_line, visible_lines

SUITE = "torchgauge"
# Characters that XML 1.0 cannot hold, not even escaped; `visible_lines` escapes the others.
_FORBIDDEN = re.compile("[\ufffe\uffff]")


def render(verdict: Verdict) -> str:
    """Return the XML: a failure for what failed, an error for what could not be decided."""
    outcomes = [ruling.outcome for ruling in verdict.rulings]
    failures = outcomes.count("fail")
    counts = {
        "tests": len(outcomes),
        "failures": failures,
        "errors": len(outcomes) - failures - outcomes.count("pass"),
        "skipped": 0,
        "time": f"{verdict.duration or 0.0:.3f}",
    }
    attributes = {name: str(value) for name, value in counts.items()}
    suites = Xml.Element("testsuites", {"name": SUITE, **attributes})
    suite = Xml.SubElement(suites, "testsuite", {"name": SUITE, **attributes})
    comparison = verdict.comparison
    name = SUITE if comparison is None else f"{SUITE}.{one_line(comparison.current.target.name)}"
    for ruling in verdict.rulings:
        suite.append(_case(ruling, verdict, name))
    Xml.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(suites, encoding="unicode")}\n'


def _case(ruling: Ruling, verdict: Verdict, class_name: str) -> Xml.Element:
    # The case's name stays the same from run to run, or servers could not follow its history.
    kind = "limit" if ruling.limit is not None else "tolerance"
    name = one_line(f"{ruling.label} {kind}")
    case = Xml.Element(
        "testcase", {"classname": _legal(class_name), "name": _legal(name), "time": "0.000"}
    )
    message = _legal(rulings.line(ruling))
    if ruling.outcome == "pass":
        Xml.SubElement(case, "system-out").text = message
        return case
    failed = ruling.outcome == "fail"
    element = Xml.SubElement(
        case, "failure" if failed else "error", {"type": ruling.outcome, "message": message}
    )
    details = rulings.regressed_layers(ruling, verdict) if failed else rulings.advice(verdict)
    element.text = _legal("\n".join([message, *details]))
    return case


def _legal(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", visible_lines(text))
