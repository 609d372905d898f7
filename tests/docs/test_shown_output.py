"""Output on a page is compared by its labels."""

import pytest
from tests.support.shown_output import labels, missing_lines

PRINTED = """
Where the time goes  measured
layer                type     calls     time     self    share
loop                 callable     –  36.2 ms      0 s  100.0 %  ██████████
  Linear             Linear       1  16.2 ms  16.2 ms   44.7 %  ████▌
  layers.0.1.conv2   Conv2d       1  1.02 GB/s  95 % in 1 … 2 µs (±7 %)
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  Linear   Linear  1  16.2 ms  44.7 %  ████▌", ["Linear", "Linear"]),
        ("peak  58.24 MB  in layers.3.1.conv2", ["peak", "in", "layers.3.1.conv2"]),
        ("achieved  1.5e+09 FLOP/s", ["achieved"]),
        ("Sequential.2  Linear  <0.1 %  3.28 M", ["Sequential.2", "Linear"]),
        ("2 ranks  measured", ["ranks", "measured"]),
        ("…", []),
        ("fp32 · batch 16", ["fp32", "·", "batch"]),
    ],
)
def test_labels_are_what_is_no_figure(line, words):
    assert labels(line) == words


@pytest.mark.parametrize(
    "line",
    [
        "layer type … time share",
        "  Linear  Linear  2  9.99 s",
        "…",
        "  layers.0.1.conv2  Conv2d  …",
    ],
)
def test_other_figures_and_omissions_pass(line):
    assert missing_lines(line, PRINTED) == []


@pytest.mark.parametrize(
    "line", ["layer  type  device", "  ReLU  Linear", "time  layer", "  layers.0.2.conv2  Conv2d"]
)
def test_other_labels_and_another_order_are_missing(line):
    assert missing_lines(line, PRINTED) == [line]
