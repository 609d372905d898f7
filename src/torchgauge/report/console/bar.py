"""A share drawn as a bar."""

from __future__ import annotations


def bar(share: float, width: int) -> str:
    """Return a share (0…1) drawn in `width` columns."""
    # A record edited by hand may hold a part that is larger than the whole.
    eighths = round(min(max(share, 0), 1) * width * 8)
    full, remainder = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[remainder] if remainder else "")).ljust(width)
