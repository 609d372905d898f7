"""What a page holds as data, as a browser would read it."""

import html.parser
import json

from torchgauge.report.page.html import render


class Elements(html.parser.HTMLParser):
    """What elements a browser would see, with their texts; scripts hold text alone."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.texts.append("")
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.texts[-1] += data


def data(text: str) -> dict:
    elements = Elements(text)
    at = next(i for i, (_, attrs) in enumerate(elements.found) if attrs.get("id") == "data")
    return json.loads(elements.texts[at])


def parts(record) -> dict:
    return data(render(record))["parts"]


def table(record, name):
    found = next(one for one in parts(record)["tables"] if one["name"] == name)
    return {column["title"]: column["values"] for column in found["columns"]}
