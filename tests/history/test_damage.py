"""Whatever befalls a store's file, the answer is a result or one of our errors."""

import collections
import random

import pytest
from tests.history import runs

from torchgauge.errors import TorchgaugeError
from torchgauge.history.store import Store
from torchgauge.history.trend import trend


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    file = tmp_path_factory.mktemp("whole") / "history.db"
    with Store.open(str(file)) as store:
        for day in range(12):
            store.add(runs.run(day, layers={"a": 5}, labels={"k": "v"}))
    return file.read_bytes()


def damaged(content, rng):
    """Return the file with some bytes changed, or a part of it gone."""
    broken = bytearray(content)
    kind = rng.choice(["bytes", "cut", "block"])
    if kind == "cut":
        return bytes(broken[: rng.randrange(len(broken))])
    if kind == "block":
        start = rng.randrange(0, len(broken), 512)
        broken[start : start + 512] = rng.randbytes(512)
    else:
        for _ in range(rng.randrange(1, 30)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
    return bytes(broken)


@pytest.mark.parametrize("cases", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_damaged_file_is_read_or_named(cases, whole, tmp_path):
    rng = random.Random(4)
    seen = collections.Counter()
    for case in range(cases):
        file = tmp_path / f"{case}.db"
        file.write_bytes(damaged(whole, rng))
        try:
            with Store.open(str(file)) as store:
                trend(store, metrics=["latency_median"])
                trend(store, layer="*")
                list(store.entries())
                store.add(runs.run(100))
                store.remove([store.find("latest").uuid])
            seen["result"] += 1
        except TorchgaugeError as error:
            seen[error.id] += 1
        for left in tmp_path.iterdir():
            left.unlink()
    print(dict(seen))
    assert seen["result"]
    assert seen["store-damaged"]
    assert seen["store-damaged"] > 10 * seen["store-failed"]  # a table's own text can be hit
    others = {"store-newer", "store-failed", "run-unknown", "record-invalid"}
    assert set(seen) <= {"result", "store-damaged", *others}
