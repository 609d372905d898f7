"""Shows the repository's own pages (changelog, contributing, architecture) in the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages, with their links to docs/ as the site has them."""
    for name in PAGES:
        text = (ROOT / name).read_text().replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files
