"""What compilation cost and gained, and where memory ran out, on the page."""

import msgspec
import pytest
from tests.support import pages, records
from tests.support.accessibility import violations
from tests.support.hostile_texts import HOSTILE

from torchgauge.records.memory.memory import AliveTensor, OutOfMemory
from torchgauge.records.record import Interval
from torchgauge.records.timeline.compilation import (
    ComparedLayers,
    Compilation,
    CompilationCost,
    EagerComparison,
)

pytestmark = pytest.mark.browser


def profile(name="layer1.0.bn1"):
    rows = (
        ComparedLayers(layers=("conv1",), eager=4e-3, compiled=3e-3, kernels=("extern.conv",)),
        ComparedLayers(layers=(name, "relu"), eager=3e-3, compiled=1e-3, kernels=("fused", name)),
        ComparedLayers(layers=("drop",), eager=1e-4),
        ComparedLayers(part="compiled code outside kernels", compiled=5e-4),
        ComparedLayers(part="rest of the step", eager=9e-4, compiled=-1e-4),
    )
    comparison = EagerComparison(
        eager=8e-3, compiled=4.4e-3, speed_up=1.82, interval=Interval(low=1.7, high=1.9),
        rounds=5, rows=rows, phases={"backward": (2e-2, 1e-2)},
    )  # fmt: skip
    compilation = Compilation(
        graphs=2, graph_breaks={name: 1}, recompiles={}, compile_time=3.0, beside_eager=comparison
    )
    return records.profile(compilation=compilation)


def loop(name="size mismatch at index 0"):
    costs = (
        CompilationCost(cause="first", reason="", place="train.py:3", count=1, time=2.5),
        CompilationCost(cause="recompilation", reason=name, place="train.py:9", count=4, time=1.5),
    )
    tensor = AliveTensor(part="activations", name=name, size=4096, shape=(32, 32), dtype="float32")
    failed = OutOfMemory(
        device="cpu", message=name, requested=1 << 40, step=3, layer=name, total=4096,
        tensors=(tensor,),
    )  # fmt: skip
    near = msgspec.structs.replace(failed, limit=10**9, free=10**8, requested=None, caught=True)
    return msgspec.structs.replace(
        pages.loop(), compilation_costs=costs, out_of_memory=(near, failed)
    )


def test_layers_stand_eager_beside_compiled(opened):
    text = opened(profile()).page.locator("#compilation").inner_text()
    assert "1.82×" in text
    assert "layer1.0.bn1, relu" in text
    assert "compiled code outside kernels" in text
    assert "phase: backward" in text
    assert "−100 µs" in text


def test_a_loop_s_costs_and_where_its_memory_ran_out(opened):
    page = opened(loop()).page
    text = page.locator("#compilation").inner_text()
    assert "recompilation" in text
    assert "train.py:9" in text
    text = page.locator("#memory_ran_out").inner_text()
    assert "Memory nearly ran out on cpu" in text
    assert "1.000 GB" in text
    assert "32×32" in text


@pytest.mark.parametrize("record", [profile(HOSTILE[0]), loop(HOSTILE[1])])
def test_names_stay_names_and_it_is_accessible(record, opened, axe):
    for scheme in ("light", "dark"):
        narrow = {"color_scheme": scheme, "viewport": {"width": 400, "height": 900}}
        assert violations(opened, axe, record, **narrow) == []
