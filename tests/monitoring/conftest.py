"""Monitors to test with: files in the test's own folder, and closed after it."""

import pytest

from torchgauge.monitoring.background import background


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHGAUGE_STATE", str(tmp_path))
    yield tmp_path / "monitors"
    for monitor in list(background._monitors):
        monitor.close()
