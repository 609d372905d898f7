"""The site is built without a warning, holds every verb and every public name, fetches nothing."""

import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from tests.support.paths import ROOT

import torchgauge as tg
from torchgauge.analyze.findings.catalogue import RULES
from torchgauge.cli.main import VERBS, build

PAGES = [str(page.relative_to(ROOT)) for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))]
SETTINGS = os.environ | {"DOCS_RUN_NOTEBOOKS": "false", "NO_MKDOCS_2_WARNING": "1"}


def mkdocs(folder, config=ROOT / "mkdocs.yml"):
    command = [sys.executable, "-m", "mkdocs", "build", "-f", config, "-d", folder]
    return subprocess.run(
        command, env=SETTINGS, cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site that `make docs` has just built, where TORCHGAUGE_SITE names it; else a new one."""
    if built := os.environ.get("TORCHGAUGE_SITE"):
        assert (ROOT / built / "index.html").exists()
        return ROOT / built
    folder = tmp_path_factory.mktemp("site")
    done = mkdocs(folder)
    assert done.returncode == 0, done.stderr
    return folder


class Seen(HTMLParser):
    """What a page shows and what it loads."""

    def __init__(self, page):
        super().__init__()
        self.ids, self.loaded, self.text = set(), [], []
        self.feed(page.read_text())

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.ids.add(named.get("id"))
        if tag in ("script", "img", "iframe", "source"):
            self.loaded.append(named.get("src") or "")
        if tag == "link" and named.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(named.get("href") or "")

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.thorough
def test_every_finding_has_a_row(site):
    text = (site / "findings.html").read_text()
    for rule in RULES:
        assert f"<code>{rule}</code>" in text


def parser_of(verb):
    (verbs,) = (one for one in build()._actions if one.nargs == argparse.PARSER)
    return verbs.choices[verb]


def nested(parser):
    """Return the parsers of a verb's actions."""
    return [
        p for one in parser._actions if one.nargs == argparse.PARSER for p in one.choices.values()
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("verb", VERBS)
def test_a_verbs_page_has_all_that_the_parser_knows(verb, site):
    text = " ".join(Seen(site / "verbs" / f"{verb}.html").text).replace("\u00a0", " ")
    words = " ".join(text.split())
    parser = parser_of(verb)
    actions = [action for one in (parser, *nested(parser)) for action in one._actions]
    for action in actions:
        if action.dest == "help":
            continue
        for option in action.option_strings:
            assert option in words
        said = (action.help or "") % {"default": action.default}
        assert " ".join(said.split()) in words
    assert f"torchgauge {verb}" in (site / "index.html").read_text()  # it is in the menu


@pytest.mark.thorough
def test_every_public_name_is_described(site):
    ids = set().union(*(Seen(page).ids for page in (site / "api").glob("*.html")))
    assert {f"torchgauge.{name}" for name in tg.__all__} <= ids


@pytest.mark.thorough
def test_a_record_shows_its_fields(site):
    words = "".join(Seen(site / "api" / "records.html").text)
    for field in tg.Size.__struct_fields__:
        assert re.search(rf"\b{field}: ", words)


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in tg.__all__ if name[0].isupper()])
def test_a_class_shows_every_attribute_and_method(name, site):
    described = getattr(tg, name)
    pages = [page.read_text() for page in (site / "api").glob("*.html")]
    page = next(page for page in pages if f'id="torchgauge.{name}"' in page)
    section = page.split(f'id="torchgauge.{name}"', 1)[1].split("doc doc-object doc-class", 1)[0]
    fields = re.findall(r"^\s*(\w+)(?:: |\s*$)", re.sub(r"<[^>]+>", "", section), re.MULTILINE)
    shown = {*fields, *re.findall(rf'id="torchgauge\.{name}\.(\w+)"', page)}
    # What Exception, tuple and contextlib have is not ours to describe.
    ours = [one for one in described.__mro__ if one.__module__.startswith("torchgauge")]
    public = {attribute for one in ours for attribute in vars(one) if not attribute.startswith("_")}
    assert public
    assert public - shown == set()


@pytest.mark.thorough
def test_nothing_is_fetched(site):
    for page in site.rglob("*.html"):
        loaded = Seen(page).loaded
        assert any(name.endswith(".js") for name in loaded)
        assert not [name for name in loaded if re.match(r"(https?:)?//", name)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(https?:)?//", style.read_text()), style


# The search puts sections first whose heading has the words (a boost of 1000 against the text's 1).
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("query", "location"),
    [
        ("wandb", "recipes/trackers.html#weights-biases-wandb"),
        ("MLflow", "recipes/trackers.html#mlflow"),
        ("MFU", "faq.html#what-is-mfu-and-where-is-it"),
        ("CUDA out of memory", "troubleshooting.html#cuda-out-of-memory"),
        ("Windows", "faq.html#does-it-work-on-windows-or-macos"),
        ("got slower", "recipes/regression.html"),
    ],
)
def test_a_search_leads_to_a_heading_that_fits(query, location, site):
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert index["config"]["fields"]["title"]["boost"] >= 1000
    words = set(query.lower().split())
    titles = {one["location"]: html.unescape(one["title"]).lower() for one in index["docs"]}
    fitting = [at for at, title in titles.items() if words <= set(re.findall(r"\w+", title))]
    assert location in fitting
    assert len(fitting) <= 3  # all of them are in sight


@pytest.mark.thorough
def test_programs_are_not_part_of_it(site):
    assert not list(site.rglob("*.py"))


@pytest.mark.parametrize("path", PAGES)
def test_links_lead_somewhere_in_the_repository_too(path):
    targets = re.findall(r"\]\(([^)#\s]+)", (ROOT / path).read_text())
    files = [target for target in targets if "://" not in target]
    assert [name for name in files if not (ROOT / path).parent.joinpath(name).exists()] == []


@pytest.mark.thorough
def test_a_link_to_what_the_site_makes_leads_to_its_page(site):
    assert 'href="notebooks/quickstart.html">Quickstart</a>, a' in (site / "index.html").read_text()
    assert 'href="verbs/profile.html">profile' in (site / "getting-started.html").read_text()
    assert 'href="quickstart.ipynb"' in (site / "notebooks" / "quickstart.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("[gone](nowhere.md)", "nowhere.md"),
        ("[gone](costs.md#nowhere)", "nowhere"),
        ("::: torchgauge.nothing", "nothing"),
    ],
)
def test_what_leads_nowhere_fails(change, says, tmp_path):
    """A site of one page more, built as the real one is."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for path in (ROOT / "src", ROOT / "mkdocs.yml", *ROOT.glob("*.md")):
        (tmp_path / path.name).symlink_to(path)
    limits = tmp_path / "docs" / "limits.md"
    limits.write_text(limits.read_text() + f"\n{change}\n")
    done = mkdocs(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode != 0
    assert says in done.stderr
