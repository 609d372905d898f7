"""The record itself, as JSON."""

from __future__ import annotations

from torchgauge.model import codec
from torchgauge.model.profile import Profile


def render(profile: Profile) -> str:
    """Return the whole record as JSON text."""
    return codec.encode(profile).decode()
