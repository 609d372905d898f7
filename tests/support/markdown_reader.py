"""Markdown as a reader of CommonMark with tables sees it."""

from markdown_it import MarkdownIt
from tests.support import exported_records as records

from torchgauge.report.markdown.markdown_blocks import FOLD, UNFOLD

PLAIN = " ".join(records.ODD.split()).replace("\u202e", "\\u202e")


def tables(text):
    """Return the rows of each table as texts of their cells, without markup and indentation."""
    found, row = [], None
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "table_close":
            row = None
        elif token.type == "tr_open":
            row = []
            found[-1].append(row)
        elif token.type == "inline" and row is not None:
            row.append("".join(child.content for child in token.children).strip())
    return found


def without_markup(text):
    """Return the pieces of text, of which none is markup that a name brought."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    marks = {one.type for one in inline} - {"text", "code_inline", "strong_open", "strong_close"}
    assert marks <= {"em_open", "em_close", "softbreak", "html_inline"}
    assert {one.content for one in inline if one.type == "html_inline"} <= {"<br>"}
    blocks = {token.content.strip() for token in tokens if token.type == "html_block"}
    assert blocks <= {FOLD, UNFOLD}
    return inline
