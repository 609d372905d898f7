"""A machine that was slower than usual is told in every form, as estimated; a usual one is not."""

import json

import msgspec
import pytest
from tests.support.records import profile

from torchgauge.records import codec
from torchgauge.records.latency.latency import Yardstick
from torchgauge.records.record import Interval


def told(low, high):
    record = profile()
    yardstick = Yardstick(
        times={"matmul": 1e-4}, speed=0.87, speed_interval=Interval(low=low, high=high), runs=12
    )
    latency = msgspec.structs.replace(record.latency, yardstick=yardstick)
    return msgspec.structs.replace(record, latency=latency)


FORMS = {
    "terminal": str,
    "Markdown": lambda record: record.to_markdown(),
    "page": lambda record: record.to_html(),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_unusual_speed_is_said_with_its_interval_and_as_estimated(form):
    text = " ".join(FORMS[form](told(0.8, 0.95)).split())
    assert "×0.87" in text
    assert "of its usual speed in 12 earlier runs, estimated; 95 % in 0.80 … 0.95" in text
    assert "of its usual speed" not in " ".join(FORMS[form](told(0.7, 1.1)).split())
    assert "of its usual speed" not in " ".join(FORMS[form](profile()).split())


def test_machines_read_it_too():
    text = told(0.8, 1.1).to_openmetrics()
    line = next(line for line in text.splitlines() if line.startswith("torchgauge_machine_speed"))
    assert 'how="estimated"' in line
    assert line.endswith(" 0.87")
    assert "machine_speed" not in profile().to_openmetrics()
    found = json.loads(codec.encode(told(0.8, 1.1)))["latency"]["yardstick"]
    assert (found["speed"], found["runs"], found["how"]) == (0.87, 12, "estimated")
