"""The commands of README.md, as its reader would copy them."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    text = README.read_text()
    return [body for found, body in _BLOCK.findall(text) if found == language]


def commands(prompt: str) -> list[str]:
    """What follows a prompt (`$ ` or `# `) in console blocks, remarks after two spaces cut off."""
    lines = "".join(blocks("console")).splitlines()
    typed = [line.removeprefix(prompt) for line in lines if line.startswith(prompt)]
    return [re.split(r"\s{2,}", line)[0] for line in typed]
