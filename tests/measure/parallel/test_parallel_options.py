"""Meshes as they are written."""

import pytest

from torchgauge.errors import InputError
from torchgauge.measure.parallel.parallel_options import ParallelOptions, mesh_of


def test_a_mesh_is_read_outermost_first():
    assert mesh_of("fsdp=128, tp=8") == (("fsdp", 128), ("tp", 8))
    assert mesh_of({"fsdp": 2}) == (("fsdp", 2),)
    assert ParallelOptions(mesh=mesh_of("fsdp=128,tp=8")).world_size == 1024


@pytest.mark.parametrize(
    "text",
    ["", "fsdp", "fsdp=0", "fsdp=-2", "fsdp=2,fsdp=2", "8", "fsdp=8;tp=2", "fsdp=1e3", "a b=2",
     "fsdp=99999999999999999999", "fsdp=2,", {}, {"fsdp": "x"}, {"fsdp": 0}, {"": 2}],
)  # fmt: skip
def test_what_is_not_a_mesh_is_refused(text):
    with pytest.raises(InputError) as refused:
        ParallelOptions(mesh=mesh_of(text))
    assert refused.value.id == "mesh-invalid"


def test_the_smallest_mesh_needs_a_device():
    with pytest.raises(InputError, match="depends on the device"):
        ParallelOptions(mesh=(("fsdp", 2),), smallest=True)
