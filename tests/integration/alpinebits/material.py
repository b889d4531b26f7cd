"""Messages of the protocol: our own, and the official ones, which stay outside the project.

`tests/data/alpinebits` holds messages of our own with recorded verdicts (`test_recorded.py`). The
official schemas and samples are used as well where they are: in `../shared`, or in the folder that
the environment variable CORDATA_SHARED names (`none`: nowhere).
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from lxml import etree

from alpinehub.alpinebits.grammar import check
from alpinehub.alpinebits.protocol import PROTOCOLS

OWN = Path(__file__).parents[2] / "data" / "alpinebits"
#: Outside of the checkout. To be asked for by `is_there`, `need` or `samples`.
OFFICIAL = (
    Path(os.environ.get("CORDATA_SHARED") or Path(__file__).parents[4] / "shared") / "alpinebits"
)


def is_there() -> bool:
    """Whether the official material is."""
    return OFFICIAL.is_dir()


def need() -> None:
    """Skip the test, saying so, where the official material is not there."""
    if not is_there():
        pytest.skip("needs the official AlpineBits schemas and samples: see CORDATA_SHARED")


@cache
def schema(version: str) -> etree.XMLSchema:
    """An official schema; skips where it is not there."""
    need()
    return etree.XMLSchema(etree.parse(OFFICIAL / "schema" / f"alpinebits-{version}.xsd"))


def problems(document: bytes, version: str) -> list[str]:
    """What the schema of a version says against a document.

    Where the schemas are not there, what our grammar says: `test_grammar.py` compares the two.
    """
    if not is_there():
        problem = check(etree.fromstring(document), PROTOCOLS[version])
        return [] if problem is None else [problem]
    validator = schema(version)
    if validator.validate(etree.fromstring(document)):
        return []
    return [str(validator.error_log)]


def samples(*patterns: str) -> list[Path]:
    """Our own messages of these names, and the official ones where they are there."""
    folders = (OWN, OFFICIAL) if is_there() else (OWN,)
    return sorted(path for one in folders for name in patterns for path in one.glob(name))


def name_of(path: Path) -> str:
    """Of a sample."""
    base = OWN if path.is_relative_to(OWN) else OFFICIAL
    return f"{'own' if base == OWN else 'official'}/{path.relative_to(base).with_suffix('')}"


def message(version: str, name: str) -> bytes:
    """A message: the official one, or where that is not there, ours of the same name."""
    return ((OFFICIAL if is_there() else OWN) / "messages" / version / name).read_bytes()


def own(name: str) -> bytes:
    """One of our messages."""
    return (OWN / name).read_bytes()
