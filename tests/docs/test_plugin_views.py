"""The commands that replace the views of TensorBoard's plugin are those that the page runs."""

import re

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "coming-from.md").read_text()
SECTION = PAGE[PAGE.index("## TensorBoard's profiler plugin") :]
VIEWS = ("Overview", "Operator", "Kernel", "Trace", "Memory", "Module", "Distributed", "Diff")


def test_each_view_has_a_command_that_the_page_runs():
    (run,) = re.findall(r"^```bash\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    rows = [line for line in SECTION.splitlines() if line.startswith("| ")]
    for view in VIEWS:
        (row,) = (row for row in rows if row.startswith(f"| {view}"))
        first = re.search(r"`(torchgauge [^`]+)`", row)
        assert first is not None, view
        assert first[1] in run.splitlines()
        for option in re.findall(r"`(--[^`]+)`", row.split("|")[2]):
            assert f"torchgauge trace before.pt.trace.json {option}" in run
