"""What compiling cost a loop, by cause and line: made metrics, and a model with a break."""

import time
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import torchgauge as tg
from torchgauge.measure.loop import interruptions
from torchgauge.measure.loop.interruptions import CompilationCosts

BREAK = "Call to `print`\n  Explanation: It prints.\n  Hint: Do not."


def compiled(start, seconds, name="forward", line=4, *, why=None, restart=None, before=0.0):
    return SimpleNamespace(
        start_time=start,
        entire_frame_compile_time_s=seconds,
        dynamo_time_before_restart_s=before,
        restart_reasons={restart} if restart else set(),
        recompile_reason=why,
        co_name=name,
        co_filename="model.py",
        co_firstlineno=line,
    )


@pytest.fixture
def dynamo(monkeypatch):
    """Return Dynamo's metrics, which the test appends to, and its one break in line 6."""
    metrics = [compiled(1.0, 5.0)]  # of before the loop
    frames = [SimpleNamespace(filename="model.py", lineno=6)]
    utils = SimpleNamespace(
        get_compilation_metrics=lambda: metrics[-64:],
        graph_break_reasons=[SimpleNamespace(reason=BREAK, user_stack=frames)],
    )
    monkeypatch.setattr(interruptions.internals, "dynamo", lambda: utils)
    return metrics


def test_a_break_costs_its_own_code_and_the_restart_before_it(dynamo):
    costs = CompilationCosts()
    dynamo.append(compiled(2.0, 0.5, restart=BREAK, before=0.125))
    dynamo.append(compiled(3.0, 0.25, "torch_dynamo_resume_in_forward_at_6", 6))
    costs.end()
    costs.end()  # nothing new
    by_cause = {cost.cause: cost for cost in costs.costs()}
    assert by_cause["graph break"].time == pytest.approx(0.375)
    assert by_cause["graph break"].reason == "Call to `print`: It prints."
    assert by_cause["graph break"].place == "model.py:6"
    assert by_cause["first"].time == pytest.approx(0.375)
    assert by_cause["first"].place == "model.py:4"


def test_recompilations_are_told_apart_by_reason_and_counted_where_steps_count(dynamo):
    costs = CompilationCosts()
    for step, counts in enumerate((True, False, True)):
        costs.counts = counts
        dynamo.append(compiled(2.0 + step, 0.5, why=f"0/{step}: size  mismatch"))
        costs.end()
    (only,) = costs.costs()
    assert (only.cause, only.reason, only.count) == ("recompilation", "size mismatch", 2)
    assert only.time == pytest.approx(1.0)


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        x = self.layer(x)
        torch._dynamo.graph_break()
        return x.relu()


@pytest.mark.thorough
def test_a_loop_s_break_and_recompilation_are_at_their_lines_and_nothing_of_ours_is_compiled():
    torch._dynamo.reset()
    model = torch.compile(Broken(), backend="eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    began = time.perf_counter()
    with tg.timeline() as run:
        for step in range(24):
            model(torch.ones(5 if step == 22 else 4, 8)).sum().backward()
            optimizer.step()
    duration = time.perf_counter() - began
    costs = run.record.compilation_costs
    line = Broken.forward.__code__.co_firstlineno
    lines = defaultdict(set)
    for cost in costs:
        lines[cost.cause].add(int(cost.place.rpartition(":")[2]) - line)
    assert lines["first"] == {0}
    assert lines["graph break"] == {2}
    assert lines["recompilation"] == {0, 2}
    assert all(cost.place.startswith(__file__) for cost in costs)
    assert 0 < sum(cost.time for cost in costs) < duration
    assert any("size mismatch" in cost.reason for cost in costs)
    torch._dynamo.reset()
