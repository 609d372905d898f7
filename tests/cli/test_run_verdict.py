"""`torchgauge run` of a script with a fault ends with a verdict that names it."""

import subprocess
import sys

import pytest

import torchgauge as tg
from torchgauge.records import rendering

SCRIPT = """\
import sys, torch
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    output = model(torch.ones(16, 64))
    output.sum().backward()
    total = 0.0
    for value in output.detach().expand(8, 16, 8).flatten():
        total += value.item()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_loop_that_reads_single_values_is_told_so(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torchgauge", "run", "--output-dir", "out", "train.py", "45"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    record = tg.load(tmp_path / "out" / "loop.json")
    verdict = record.verdict
    assert (verdict.bound, verdict.cause, verdict.fault) == ("host", ".item()", True)
    assert verdict.interval.low > 0.1
    assert verdict.command == "torchgauge run --lines train.py 45"
    (read,) = (read for read in record.scalars if read.call == "item")
    assert (read.calls, read.line) == (8 * 16 * 8, 12)
    assert read.file.endswith("train.py")
    lines = done.stderr.splitlines()
    assert lines.index("Verdict") < lines.index("Steps  measured")
    assert any(line.startswith("  ! Bound by the host: ") for line in lines)
    brief = rendering.text(record, "brief").splitlines()
    assert brief.index("## Verdict") < next(n for n, x in enumerate(brief) if "## Findings" in x)
    page = rendering.text(record, "html")
    assert "Bound by the host" in page
