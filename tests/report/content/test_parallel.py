"""What is said of a rank: verdicts, layers in groups, savings, at any width."""

import msgspec
from tests.support.parallels import GIB, parallel, rank

from torchgauge.records import rendering
from torchgauge.records.parallel.rank_memory import AliveBytes
from torchgauge.report.content.document import Options
from torchgauge.report.content.parallel.parallel import alternatives, document, fits, headline
from torchgauge.report.content.parallel.rank_blocks import layers, work
from torchgauge.report.page.parallel import page_parallel


def stages():
    """Two stages of a pipeline, of which the second does not fit."""
    first, second = rank("stage 0"), rank("stage 1")
    fit = msgspec.structs.replace(second.fits[0], verdict="does not fit", margin=-GIB)
    record = parallel("")
    return msgspec.structs.replace(
        record, kinds=(first, msgspec.structs.replace(second, fits=(fit,)))
    )


def test_the_headline_is_the_worst_verdict():
    assert headline(parallel("")) == "fits H100"
    assert headline(stages()) == "does not fit H100 80GB HBM3"
    alone = msgspec.structs.replace(rank(), fits=())
    unjudged = msgspec.structs.replace(parallel(""), kinds=(alone,))
    assert headline(unjudged) == "reserves 47.2 GB on each device"


def test_layers_that_differ_in_a_number_are_one_row():
    held = [("activations", f"layers.{index}.mlp", 10 + index) for index in range(3)]
    at_peak = tuple(
        AliveBytes(part=part, layer=layer, bytes=size)
        for part, layer, size in [*held, ("inputs", "", 7), ("parameters", "head", 40)]
    )
    kind = rank()
    memory = msgspec.structs.replace(kind.memory, peak=80, at_peak=at_peak)
    table = layers(msgspec.structs.replace(kind, memory=memory), 10)
    rows = {row.name: (row.cells.get("layers"), row.cells["bytes"]) for row in table.rows}
    assert rows == {
        "head": (None, 40), "layers.*.mlp": (3, 33), "(the model itself)": (None, 7)
    }  # fmt: skip


def test_what_may_not_fit_says_how_to_find_what_would():
    unexplored = msgspec.structs.replace(stages(), alternatives=())
    assert "--savings" in fits(unexplored).notes[-1]
    assert "--savings" not in fits(stages()).notes[-1]


def test_savings_are_sorted_and_failures_said():
    table = alternatives(parallel(""))
    names = [row.name for row in table.rows]
    assert names == ["as it is", "checkpoint every layer", "half the batch"]
    cells = table.rows[1].cells
    assert (cells["saved"], cells["flops"]) == (11 * GIB, "+18 %")
    assert table.notes == ["half the batch: The batch is 1."]


def test_flops_with_recomputation_are_apart():
    rows = {row.label: row.value for row in work(rank()).rows}
    assert rows["FLOPs"] == "1.000 P"
    assert rows["recompute"] == "100.0 T"


def test_the_page_has_the_memory_of_each_kind():
    choice = page_parallel.choice(stages())
    assert [option.name for option in choice.options] == ["stage 0", "stage 1"]
    part = choice.options[0].parts["memory"]
    assert max(part["live"]) <= part["peak"]
    assert dict(part["stacked"])["activations"] == [0, 12 * GIB, 11 * GIB, 0]
    cards = page_parallel.overview(stages())["figures"]
    assert cards[0]["value"] == "does not fit"


def test_it_is_readable_at_80_columns():
    assert document(stages(), Options()).blocks
    text = "".join(segment.text for segment in rendering.segments(stages(), "console", 80))
    assert max(map(len, text.splitlines())) <= 80
    assert "stage 1 (rank 0, 128 ranks alike)" in text


def test_figures_are_told_apart_by_kind_and_device():
    row = parallel("").summary()
    assert row["parallel_reserved_bytes"] == 44 * GIB
    assert row["parallel_margin_onH100_bytes"] == 80 * 10**9 - 44 * GIB
    assert stages().summary()["parallel_peak_kindstage 1_bytes"] == 40 * GIB
    assert stages().to_csv(table="layers").splitlines()[1] == "stage 0,layers.0,parameters," + str(
        8 * GIB
    )
