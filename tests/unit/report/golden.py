"""Reports as they should read, in files; and names that want to be more than names."""

from __future__ import annotations

import os
from pathlib import Path

from lxml import etree, html

from alpinehub.report.writing import Report

GOLDEN = Path(__file__).parents[2] / "data" / "report"
#: Set to write the files anew: then read what changed.
WRITE = "WRITE_GOLDEN"
HOSTILE = (
    "<script>alert(1)</script>",
    "</title></body><img src=x onerror=alert(1)>",
    "{{7*7}}{% raw %}",
    "Hotel\r\nBcc: evil@example.org\r\n\r\nHello",
    "\u202egnp.exe\u2066 \x1b[31m\x00",
    "Ho\u0308tel \U0001f3e8 שלום '\" &amp;",
)


def check_golden(name: str, text: str) -> None:
    """The text is that of the file."""
    path = GOLDEN / name
    if os.environ.get(WRITE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def check_harmless(report: Report, name: str) -> None:
    """A name in a report is text: no element, no line, no direction of its own."""
    root = html.document_fromstring(report.html)
    assert not root.xpath("//script | //img[@onerror]")
    assert [root.xpath(f"count({one})") for one in ("//body", "//h1", "//head/title")] == [1, 1, 1]
    text = etree.tostring(root, method="text", encoding="unicode")
    for told in (report.subject, report.text, text):
        assert not set(told) & set("\x00\x1b\r\u202e\u2066")
        assert "49" not in told
    assert "\n" not in report.subject
    assert not any(line.startswith("Bcc:") for line in report.text.splitlines())
    visible = " ".join(name.split("\x00")[0].split()).split(" ")[0].strip("\u202e\u2066")
    assert visible in report.subject
    assert visible in text
