"""The message catalog explains each event there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from cordata import events

CATALOG = Path(__file__).resolve().parents[3] / "units/catalog/cordata.catalog"
_ENTRY = re.compile(r"^-- ([0-9a-f]{32})\nSubject: \S", re.MULTILINE)


def test_catalog_has_one_entry_for_each_event() -> None:
    ids = [value for name, value in vars(events).items() if name.isupper()]
    assert len(set(ids)) == len(ids)
    assert sorted(_ENTRY.findall(CATALOG.read_text())) == sorted(ids)
