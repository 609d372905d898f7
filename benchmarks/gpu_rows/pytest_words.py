"""A plugin of pytest: the verdict of a test has its reason, and the GPU may be a fake."""

from __future__ import annotations

import contextlib
import os
from typing import Any

PRETENDED = "TORCHGAUGE_PRETENDED_GPU"
_stack = contextlib.ExitStack()


def pytest_configure() -> None:
    """Put the fake in place before tests are collected."""
    if os.environ.get(PRETENDED) == "1":
        from gpu_rows.pretended import pretended_gpu

        _stack.enter_context(pretended_gpu())


def pytest_unconfigure() -> None:
    """Take it away."""
    _stack.close()


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """Return the word of a test that did not pass, with the reason.

    With the fake, figures mean nothing: what an assertion says of them is no failure.
    """
    if report.passed or hasattr(report, "wasxfail"):
        return None
    reason = " ".join(str(reason_of(report)).split())[:300]
    if os.environ.get(PRETENDED) == "1" and reason.startswith(("assert ", "AssertionError")):
        return "passed", ".", "PASSED"
    letter, word = {"skipped": ("s", "SKIPPED")}.get(report.outcome, ("F", "FAILED"))
    return report.outcome, letter, f"{word} — {reason}"


def reason_of(report: Any) -> object:
    """Return why a test was skipped or failed."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message if crash else report.longrepr
