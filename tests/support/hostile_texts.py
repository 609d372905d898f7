"""Texts of strangers, and what shows that one of them commands something."""

import re

TERMINAL = (
    "{0}\x1b]0;x\x07\x1b[2J\x9b2J\x08\r\n::error::y\n  ##vso[task.complete]\x00"
    "\u202e\u2066[forged]\n[forged]{0}"
)
MARKUP = (
    "{0}</script><script>window.broken=1</script><svg onload=window.broken=1>"
    "[link](javascript:window.broken=1)|a|`b``c```\n# head\n```\n~~~\n- item\n\\|"
    "<img src=x onerror=window.broken=1>&lt;\"'>--><!--\\{0}"
)
POISONS = {
    "terminal": TERMINAL,
    "markup": MARKUP,
    "equals": "=1+1|{0}",
    "backslash": "\\|`{0}<svg onload=window.broken=1>`\\",
    "at": "@NOW()\t{0};",
    "tab": "\t=1+1 {0}",
}
ORDER = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
WORD = re.compile(r"w\d{3,}w")
HOSTILE = (
    "</script><script>window.broken=1</script>",
    "<img src=x onerror=window.broken=1>",
    "\"'><svg onload=window.broken=1>",
    "\u202egnp.exe\u2066",
    "<!--<script>",
    "line\u2028end",
)
