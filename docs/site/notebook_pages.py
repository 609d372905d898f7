"""Runs the notebooks and shows each as a page, with what its cells put out.

What they write to standard error is progress and warnings of libraries: it stays out.
"""

from __future__ import annotations

import functools
import html
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
TIME_LIMIT = 600  # seconds for one cell
QUIET = ["--IPKernelApp.log_level=40"]


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each notebook; the notebook itself is there to be downloaded."""
    paths = sorted(NOTEBOOKS.glob("*.ipynb"))
    with ThreadPoolExecutor(config.extra["notebooks_at_once"]) as pool:
        notebooks = list(pool.map(executed if config.extra["run_notebooks"] else read, paths))
    for path, notebook in zip(paths, notebooks, strict=True):
        content = page(notebook, path.name)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead to a notebook's page where the repository's own link leads to the notebook."""
    download = page.file.src_uri.startswith("notebooks/")
    return markdown if download else markdown.replace(".ipynb)", ".md)")


def read(path: Path) -> Any:
    """Return the notebook as it is saved."""
    return nbformat.read(path, as_version=4)


@functools.cache
def executed(path: Path) -> Any:
    """Return the notebook with its outputs; raises CellExecutionError where a cell does."""
    notebook = read(path)
    NotebookClient(
        notebook,
        timeout=TIME_LIMIT,
        kernel_name="python3",
        extra_arguments=QUIET,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    return notebook


def page(notebook: Any, name: str) -> str:
    """Return the notebook as Markdown, after its title a link to the file."""
    blocks = [block for cell in notebook.cells for block in _cell(cell)]
    title, _, rest = blocks[0].partition("\n")
    blocks[0] = f"{title}\n\n[Download {name}]({name})\n{rest}"
    return "\n\n".join(blocks) + "\n"


def _cell(cell: Any) -> Iterator[str]:
    if cell.cell_type == "markdown":
        yield cell.source
        return
    yield f"```python\n{cell.source}\n```"
    shown = [one for one in cell.get("outputs", ()) if one.get("name") != "stderr"]
    for output in filter(None, map(_output, shown)):  # progress leaves an empty one
        yield f'<div class="output">{output}</div>'


def _output(output: Any) -> str:
    """Return one output as HTML, the richest form that it has."""
    if output.output_type == "stream":
        return f"<pre>{html.escape(output.text)}</pre>"
    if "text/html" in output.data:
        return str(output.data["text/html"])
    if "image/png" in output.data:
        return f'<img alt="" src="data:image/png;base64,{output.data["image/png"].strip()}">'
    return f"<pre>{html.escape(output.data['text/plain'])}</pre>"
