"""The commands of README.md and docs/, as their reader would copy them."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
README, DOCS = CHECKOUT / "README.md", CHECKOUT / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """README.md, then all pages of docs/ in the order of its index."""
    index = (DOCS / "README.md").read_text()
    linked = re.findall(r"^- \[.*?\]\((?!\.\.)(.*?)\)", index, re.MULTILINE)
    return [README, *(DOCS / name for name in linked)]


def text_of(page: str) -> str:
    """The text of one page, `develop/pool.md`."""
    return (DOCS / page).read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language on all pages, in order."""
    text = "\n".join(page.read_text() for page in pages())
    return [body for found, body in _BLOCK.findall(text) if found == language]


def commands(prompt: str) -> list[str]:
    """What follows a prompt (`$ ` or `# `) in console blocks, remarks after two spaces cut off."""
    lines = "".join(blocks("console")).splitlines()
    typed = [line.removeprefix(prompt) for line in lines if line.startswith(prompt)]
    return [re.split(r"\s{2,}", line)[0] for line in typed]
