"""The keys of `cordata status --json` are those that the documentation names."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from tests.host.documents import text_of

from cordata.metrics.backlog import GroupBacklog, PrimaryState
from cordata.status import snapshot
from cordata.status.tables import document

TABLE = dict(re.findall(r"^\| (`[^|]*`) \| (.*) \|$", text_of("operate/operate.md"), re.MULTILINE))
RECORDS = {
    "units": snapshot.UnitState,
    "processes": snapshot.ProcessState,
    "primary": PrimaryState,
    "groups": GroupBacklog,
    "jobs": snapshot.JobState,
    "mail": snapshot.MailState,
    "alerts": snapshot.AlertState,
    "store": snapshot.StoreState,
    "pool": snapshot.PoolState,
    "disk": snapshot.DiskState,
}


@pytest.mark.parametrize("part", RECORDS)
def test_every_key_of_a_part_is_documented(part: str) -> None:
    named = re.findall(r"`(\w+)`", TABLE[f"`{part}`"])
    assert named == [one.name for one in fields(RECORDS[part])]


def test_every_part_is_documented() -> None:
    named = {name for keys in TABLE for name in re.findall(r"`(\w+)`", keys)}
    assert {one.name for one in fields(snapshot.Snapshot)} | {"state", "reasons"} <= named


def test_subscription_whose_name_ends_like_that_of_a_time_has_its_count() -> None:
    blocked = {"shop.looked_at": 3}
    seen = snapshot.Snapshot(version="1", host="a", systemd=False, blocked=blocked)
    assert document(seen, [])["blocked"] == blocked
