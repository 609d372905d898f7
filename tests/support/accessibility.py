"""The rules of axe-core, held against a page in a browser."""

# Passed rules are left out: naming each of some thousand elements in them takes axe many minutes.
# A page that hangs all the same fails here, since Playwright itself would wait for ever.
RUN = """() => Promise.race([
    axe.run({ resultTypes: ["violations"] }),
    new Promise((_, fail) => setTimeout(() => fail(new Error("axe did not end")), 60_000)),
])"""


def violations(opened, axe, record, **options):
    """Return the rules that a page breaks, with the first element of each, all of it unfolded."""
    return page_violations(opened(record, bypass_csp=True, **options).page, axe)


def page_violations(page, axe):
    """Return the rules that an open page breaks, which must not have a policy that stops axe."""
    page.evaluate("document.querySelectorAll('details').forEach(one => (one.open = true))")
    page.evaluate(axe)
    found = page.evaluate(RUN)
    assert found["passes"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]]
