"""The protocol's schemas and sample messages, which stay outside the project."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from lxml import etree

FOLDER = Path(__file__).parents[4] / "shared" / "alpinebits"


def need() -> None:
    """Skip the test, saying so, where the material is not beside the checkout."""
    if not FOLDER.is_dir():
        pytest.skip(f"needs the AlpineBits schemas and samples in {FOLDER}")


@cache
def schema(version: str) -> etree.XMLSchema:
    need()
    return etree.XMLSchema(etree.parse(FOLDER / "schema" / f"alpinebits-{version}.xsd"))


def problems(document: bytes, version: str) -> list[str]:
    """What the schema of a version says against a document."""
    validator = schema(version)
    if validator.validate(etree.fromstring(document)):
        return []
    return [str(validator.error_log)]


def message(version: str, name: str) -> bytes:
    """A sample message."""
    need()
    return (FOLDER / "messages" / version / name).read_bytes()
