"""What is recorded of the software."""

import torch

from torchgauge.device import environment


def test_a_cuda_that_torch_was_built_for_is_named_only_where_there_is_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert environment._software().cuda == ""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)
    assert environment._software().cuda == "13.0"
