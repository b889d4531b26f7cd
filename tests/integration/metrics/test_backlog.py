"""What waits in the store, on both stores: exact when it is little, bounded when it is much."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from tests.integration.engine.parts import opened, publish
from tests.integration.engine.stores import state
from tests.integration.metrics.filling import fill, fill_mail
from tests.integration.redis.parts import on_redis
from tests.integration.redis.stores import use
from tests.servers.redis import RedisServer

from cordata.core.message_state import Verdict
from cordata.metrics.backlog import GroupBacklog, read_backlog

__all__ = ["state"]


async def test_backlog_has_what_waits_by_group_and_state(state: Path) -> None:
    fill(state, 7, group="a")
    fill(state, 4, group="b", keyed=True)
    fill(state, 3, group="c", of="scheduled")
    fill(state, 2, group="d", of="claimed")
    fill(state, 5, group="e", of="dead")
    fill(state, 3, group="f", suspect=True)
    fill_mail(state, 6)
    async with opened(state) as store:
        now_s = store.now_us() / 1e6
        found = await store.read(read_backlog)
    assert [one.group for one in found.groups] == ["a", "b", "c", "d", "e", "f"]
    a, b, c, d, e, f = found.groups
    assert counts(a) == (7, 0, 0, 0) and a.retrying == 4
    assert counts(b) == (4, 0, 0, 0) and b.retrying == 2
    assert counts(c) == (0, 3, 0, 0) and c.retrying == 2
    assert counts(d) == (0, 0, 2, 0) and counts(e) == (0, 0, 0, 5)
    assert counts(f) == (3, 0, 0, 0) and f.retrying == 2
    for group in (a, b, c, f):  # due since the epoch
        assert group.oldest_s == pytest.approx(now_s, abs=3600)
    assert d.oldest_s is e.oldest_s is None
    assert a.absent_s == pytest.approx(now_s, abs=3600)
    assert found.mails == 6 and found.oldest_mail_s == pytest.approx(now_s, abs=3600)
    assert found.primary is None


async def test_primary_leads_until_it_gives_its_lease_back_or_its_process_ends(state: Path) -> None:
    async with opened(state) as store:

        async def lead(pid: int) -> bool:
            holder = f"{socket.gethostname()}/{pid}"
            await store.run(
                lambda tx: tx.execute("lease.take", holder=holder, acquired_at=tx.now_us)
            )
            found = (await store.read(read_backlog)).primary
            return found is not None and found.is_held

        assert await lead(os.getpid())
        ended = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, check=True)
        assert not await lead(int(ended.stdout))
        assert await lead(os.getpid())
        row = {"term": 3, "released_at": 1}
        assert await store.run(lambda tx: tx.execute("lease.release", **row)) == 1
        primary = (await store.read(read_backlog)).primary
        assert primary is not None and primary.term == 3 and not primary.is_held


async def test_counts_end_at_the_limit(state: Path) -> None:
    fill(state, 250, group="a")
    fill(state, 250, group="b", keyed=True)
    fill(state, 250, group="c", of="scheduled")
    fill(state, 250, group="d", of="claimed")
    fill(state, 250, group="e", of="dead")
    fill_mail(state, 250)
    async with opened(state) as store:
        now_s = store.now_us() / 1e6
        found = await store.read(lambda tx: read_backlog(tx, limit=100))
    assert [max(counts(one)) for one in found.groups] == [100] * 5
    assert found.groups[0].oldest_s == pytest.approx(now_s, abs=3600)
    assert found.mails == 100


async def test_backlog_has_what_waits_in_redis(state: Path, redis: RedisServer) -> None:
    use(state, redis.url)
    async with on_redis(state) as parts:
        await publish(parts.store, 1)  # before the groups were there
        await parts.register({"a": "thing.done", "b": "thing.done"})
        begun_us = parts.store.now_us()
        await publish(parts.store, 5)
        assert await parts.relay_all() == 5
        handled = await parts.claim("a", count=3)
        await parts.settle(handled[:2])
        await parts.settle(handled[2:], Verdict.RETRY)  # from now on it waits in the store
        found = {one.group: one for one in (await parts.store.read(read_backlog)).groups}
        assert counts(found["b"]) == (5, 0, 0, 0)
        assert found["a"].ready + found["a"].scheduled == 3 and found["a"].retrying == 1
        waited_s = (parts.store.now_us() - begun_us) / 1e6
        assert 0.0 < (found["b"].oldest_s or 0.0) <= waited_s


def counts(group: GroupBacklog) -> tuple[int, int, int, int]:
    return group.ready, group.scheduled, group.claimed, group.dead
