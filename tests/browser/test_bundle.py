"""The page's script and style in the package are what web/ builds."""

import shutil
import subprocess

import pytest
from tests.browser.conftest import WEB

pytestmark = pytest.mark.browser


def test_the_committed_bundle_is_what_a_build_makes():
    if shutil.which("npm") is None:
        pytest.skip("no npm is installed (Node.js)")
    if not (WEB / "node_modules").is_dir():
        pytest.skip("what builds the page is not installed (npm ci in web/)")
    done = subprocess.run(
        ["npm", "run", "check"], cwd=WEB, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
