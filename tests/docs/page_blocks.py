"""The fenced blocks of a page, as the tests take them.

```bash                     commands, run one by one
```python                   run, all of a page in one program
```… title="file.py"        a file, written before what follows is run
```python title="needs a"   run where the module `a` of an extra is installed
```text title="prints"      what the block before printed; … stands for anything
```text title="such as"     an example of it: its labels were printed, its figures may be others
<!-- run … -->              Python that is run and not shown
"""

import re
from typing import NamedTuple

FENCE = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$"
    r"|^<!-- run\n(?P<hidden>.*?)-->$",
    re.MULTILINE | re.DOTALL,
)
OUTPUTS = {"prints": "output", "such as": "example"}
NEEDS = "needs "
SHOWN_ONLY = {"text", "json", "toml", "yaml", "makefile"}
# Commands that set up, belong to another program, or go on until Ctrl-C.
NOT_RUN = ("pip install ", "make ", "git ", "nsys ", "torchgauge serve ")


class Block(NamedTuple):
    kind: str  # "bash", "python", "needing", "file", "output", "example", "shown"
    text: str
    title: str
    line: int


def blocks(page: str) -> list[Block]:
    return [_block(found, page) for found in FENCE.finditer(page)]


def _block(found: re.Match, page: str) -> Block:
    line = page.count("\n", 0, found.start()) + 1
    if found["hidden"] is not None:
        return Block("python", found["hidden"], "", line)
    language, title = found["language"], found["title"] or ""
    if title in OUTPUTS:
        kind = OUTPUTS[title]
    elif title.startswith(NEEDS):
        kind, title = "needing", title.removeprefix(NEEDS)
    elif title:
        kind = "file"
    elif language in ("bash", "python"):
        kind = language
    elif language in SHOWN_ONLY:
        kind = "shown"
    else:
        raise ValueError(f"line {line}: a block of {language} is neither run nor only shown")
    return Block(kind, found["text"], title, line)


def commands(text: str) -> list[str]:
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
