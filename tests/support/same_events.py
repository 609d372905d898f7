"""Whether two `Events` say the same, field by field."""

import dataclasses

import numpy as np

from torchgauge.records.trace.events import Coded


def assert_same(one, other, where="events"):
    if isinstance(one, Coded):
        assert decoded(one) == decoded(other), where
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            name = field.name
            assert_same(getattr(one, name), getattr(other, name), f"{where}.{name}")
    elif isinstance(one, np.ndarray):
        assert one.dtype.kind == other.dtype.kind, where
        np.testing.assert_array_equal(one, other, where)
    else:
        assert one == other, where


def decoded(column):
    return [repr(column[place]) for place in range(len(column))]  # tells 7 from "7" and 7.0
