"""The JSON Schemas that the documentation publishes."""

import json

from tests.support.paths import ROOT

SCHEMAS = ROOT / "docs" / "schema"


def published(schema):
    kind, _, version = schema.removeprefix("torchgauge.").partition("/")
    return json.loads((SCHEMAS / f"{kind}-{version}.json").read_text())
