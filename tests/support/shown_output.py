"""An example of output on a page, compared with what a run prints: labels, not figures."""

import re

FIGURE = re.compile(r"[(≤≥≈±+−<]*\d[\d.,]*(?:e[+-]?\d+)?[%×,;)]*")
# What may follow a figure; the time that a run takes decides between µs and ms.
UNIT = re.compile(r"(?:[kMGT]i?(?:B|FLOP)?|B|FLOP|[µmn]?s|min|h|%)(?:/s)?[,;)]*")
BAR = re.compile(r"[█▉▊▋▌▍▎▏▁▂▃▄▅▆▇–…]+")


def labels(line: str) -> list[str]:
    """Return the words of a line, without figures, bars and what "…" stands for."""
    words = line.split()
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if not (
            FIGURE.fullmatch(word)
            or BAR.fullmatch(word)
            or (FIGURE.fullmatch(before) and UNIT.fullmatch(word))
        )
    ]


def missing_lines(shown: str, printed: str) -> list[str]:
    """Return the shown lines whose labels are not, in this order, on any printed line."""
    printed_labels = [labels(line) for line in printed.splitlines()]
    return [
        line
        for line in shown.splitlines()
        if not any(_within(labels(line), words) for words in printed_labels)
    ]


def _within(words: list[str], line: list[str]) -> bool:
    remaining = iter(line)
    return all(word in remaining for word in words)
