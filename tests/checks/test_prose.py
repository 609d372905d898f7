"""The lint of sentences: where it reads, and that no awkward phrase is left."""

from pathlib import Path

import pytest
from checks.source import SourceFile

from checks import prose

PHRASES = prose.settings()["phrases"]


def phrases(text):
    return [phrase for phrase, _, _ in prose.awkward_phrases(text, PHRASES)]


@pytest.mark.slow
def test_no_page_and_no_text_has_an_awkward_phrase(capsys):
    assert prose.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("'x' is no limit.", "is no limit"),
        ("What this machine can do at most is not known yet: measure it.", "not known yet"),
        ("The end of the warm-up cannot be told.", "cannot be told"),
        ("kernels, have no launch: whose they are is unknown.", "whose they are"),
        ("97 ms of communication have no computation beside them.", "beside them"),
        ("whole number from {…} on", "from {…} on"),
        ("The most that a step holds", "The most that"),
        ("where the report\n    is told", "is told"),
    ],
)
def test_a_phrase_is_recognised(text, phrase):
    assert phrase in phrases(text)


@pytest.mark.parametrize(
    "text",
    [
        "There is no tree.",
        "There are none of them; it is no longer measured.",
        "What changed between these two runs?",
        "Of 40 gates none failed.",
        "The timeline has so many points that the rest is dropped.",
        "the GPU if there is one, otherwise the CPU",
    ],
)
def test_plain_sentences_pass(text):
    assert phrases(text) == []


def test_every_phrase_is_explained():
    assert all(PHRASES.values())


def test_a_page_is_read_without_its_code(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\nA `told` word (not: said), a [link](is/no/path),\nand a line.\n\n"
        "```bash\nis no prose\n```\n\n    indented code\n"
    )
    ((title, first), (text, second)) = prose.page_texts(page)
    assert (title.strip(), first, second) == ("# Title", 1, 3)
    assert text.split() == ["A", "word", ",", "a", "[link", ",", "and", "a", "line."]


def test_a_module_is_read_as_its_texts_are_shown(tmp_path):
    file = SourceFile(Path(tmp_path / "module.py"))
    file.path.write_text(
        'def f(x):\n    """Return it.\n\n    Not read.\n    """\n'
        "    raise ValueError(f\"'{x}' is \"\n        \"no limit\", 'said so')\n"
    )
    texts = list(prose.program_texts(file))
    assert texts == [("Return it.", 2), ("'{…}' is no limit", 6), ("said so", 7)]


def test_the_line_is_that_of_the_phrase():
    ((_, lines, _),) = prose.awkward_phrases("First line,\n  second line\n  is no end.", PHRASES)
    assert lines == 2
