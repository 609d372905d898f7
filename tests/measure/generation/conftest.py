"""What every test of generation relies on."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Several threads for products of these sizes wait for each other for most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
