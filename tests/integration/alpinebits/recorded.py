"""Recorded verdicts: in which versions our own messages, and small changes of them, are valid.

The official schemas said so. To record again, where they are there (see `material.py`):
`PYTHONPATH=daemon:. python -m tests.integration.alpinebits.recorded`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lxml import etree
from tests.integration.alpinebits import material
from tests.integration.alpinebits.mutants import mutants

from alpinehub.alpinebits.protocol import PROTOCOLS

#: A line for each verdict: message, 0 or 1 for each version, and what is changed in the text.
FILE = material.OWN / "verdicts.jsonl"
#: Of each message.
_CHANGES = 12
#: A change that is longer says no more, and makes the file large.
_LONGEST = 200


class Outcome(NamedTuple):
    """On a message with the characters from `start` to `end` replaced by `text`."""

    name: str
    #: "01111": valid in all versions but the first.
    valid: str
    start: int
    end: int
    text: str

    @property
    def document(self) -> bytes:
        whole = material.own(self.name).decode()
        return (whole[: self.start] + self.text + whole[self.end :]).encode()


def read() -> list[Outcome]:
    """All of them."""
    return [Outcome(*json.loads(line)) for line in FILE.read_text().splitlines()]


def valid_by_schema(document: bytes) -> str:
    """Skips where the official schemas are not there."""
    element = etree.fromstring(document)
    return "".join(str(int(material.schema(name).validate(element))) for name in PROTOCOLS)


def _record(path: Path) -> Iterator[Outcome]:
    name = str(path.relative_to(material.OWN))
    whole = path.read_text()
    yield Outcome(name, valid_by_schema(whole.encode()), 0, 0, "")
    for mutant in mutants(whole.encode(), _CHANGES, seed=len(name)):
        changed = etree.tostring(mutant, encoding="utf-8").decode() + "\n"
        start = _alike(whole, changed)
        same = _alike(whole[:start:-1], changed[:start:-1])
        end = len(changed) - same
        if changed != whole and end - start <= _LONGEST:
            text = changed[start:end]
            yield Outcome(name, valid_by_schema(changed.encode()), start, len(whole) - same, text)


def _alike(one: str, other: str) -> int:
    """How many characters are the same at the beginning."""
    different = (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(different, min(len(one), len(other)))


if __name__ == "__main__":
    verdicts = [one for path in sorted(material.OWN.glob("*/**/*.xml")) for one in _record(path)]
    lines = [json.dumps(one, ensure_ascii=False) for one in dict.fromkeys(verdicts)]
    FILE.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} verdicts")
