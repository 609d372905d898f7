"""The hooks that make the site, as the tests take them."""

import importlib.util

import pytest
from tests.support.paths import ROOT

SITE = ROOT / "docs" / "site"


@pytest.fixture(scope="session")
def hook():
    def load(name):
        spec = importlib.util.spec_from_file_location(name, SITE / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
