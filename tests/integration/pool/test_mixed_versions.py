"""Two versions of an application in one pool, as during a rolling upgrade."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cli.command import cordata
from tests.integration.pool.worker import mixed
from tests.integration.pool.workers import Workers, workers
from tests.integration.server.managed import Managed
from tests.waiting import until

from cordata import Tx
from cordata.app_loader import load_runtime
from cordata.command_context import connect
from cordata.errors import ChildCrashed, CommandUnknown, PoolTransient
from cordata.pool import Client, SyncClient

APP = "tests.integration.pool.worker.mixed:app"
PATIENCE_S = 60.0


def pair(
    all_: Workers, directory: Path
) -> tuple[AbstractContextManager[Managed], AbstractContextManager[Managed]]:
    """A worker of the new version, and one of the old one."""
    done = str(directory / "done")
    return all_.worker("0", MIXED_NEW="1", MIXED_DONE=done), all_.worker("1", MIXED_DONE=done)


def until_taken(call: Callable[[], Any]) -> Any:
    """As a handler: what may work later is tried again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except PoolTransient:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_new_command_runs_where_it_is_known(tmp_path: Path) -> None:
    with workers(tmp_path, app=APP) as all_:
        new, old = pair(all_, tmp_path)
        with new, old, SyncClient(all_.path, timeout=PATIENCE_S) as client:
            pids = {client.execute("new_about")["pid"] for _ in range(20)}
            assert len(pids) == 1
            # The old version takes its share of what both know.
            with ThreadPoolExecutor(8) as threads:

                def about(_: int) -> int:
                    with SyncClient(all_.path, timeout=PATIENCE_S) as other:
                        return int(other.execute("about", 0.05)["pid"])

                pids_of_about = set[int]()

                def both_served() -> bool:  # soon, when calls are made at the same time
                    pids_of_about.update(threads.map(about, range(16)))
                    return len(pids_of_about) == 2

                until(both_served)
            arguments = ("--state-dir", str(tmp_path), "--config", str(all_.config))
            for _ in range(3):
                result = cordata("call", "new_about", *arguments)
                assert result.returncode == 0, result.stderr
                assert json.loads(result.stdout)["pid"] in pids


def test_command_runs_again_only_if_the_version_that_ran_it_says_it_may(tmp_path: Path) -> None:
    with workers(tmp_path, app=APP) as all_:
        new, old = pair(all_, tmp_path)
        with new, old, SyncClient(all_.path, timeout=PATIENCE_S) as client:
            for worker, runs in (("0", 2), ("1", 1)):
                file = tmp_path / "ran"
                file.write_text("")
                session = client.sessions.create(worker=worker, affinity="strict_queue").id
                with pytest.raises(ChildCrashed):
                    client.execute("die", str(file), session=session)
                assert len(file.read_text().split()) == runs


async def test_new_command_of_a_client_that_is_alone_runs_where_it_is_known(tmp_path: Path) -> None:
    with workers(tmp_path, app=APP) as all_:
        new, old = pair(all_, tmp_path)
        with new, old:
            async with Client(all_.path, timeout=PATIENCE_S) as client:
                for _ in range(100):
                    await client.execute("about")
                calls = [client.execute("new_about") for _ in range(100)]
                found = await asyncio.gather(*calls)
                assert len({about["pid"] for about in found}) == 1
                with pytest.raises(CommandUnknown):
                    await client.execute("nothing")


def test_new_command_waits_for_who_knows_it_and_holds_up_nobody(tmp_path: Path) -> None:
    with workers(tmp_path, app=APP) as all_:
        new, old = pair(all_, tmp_path)
        with new, old, ThreadPoolExecutor(1) as threads:
            client = SyncClient(all_.path, timeout=PATIENCE_S)
            second = SyncClient(all_.path, timeout=PATIENCE_S)
            with client, second, SyncClient(all_.path, timeout=PATIENCE_S) as third:
                knows = client.execute("new_about")["pid"]
                waiting = client.submit("new_wait", 60.0)
                all_.until_running("new_wait")
                about = threads.submit(until_taken, lambda: second.execute("new_about"))
                others = {third.execute("about")["pid"] for _ in range(20)}
                assert not waiting.done()
                assert knows not in others
                assert waiting.cancel()
                assert about.result(PATIENCE_S)["pid"] == knows


def test_new_command_outlives_the_restart_of_the_one_that_knows_it(tmp_path: Path) -> None:
    with workers(tmp_path, app=APP) as all_:
        new, old = pair(all_, tmp_path)
        with old, ThreadPoolExecutor(1) as threads:
            with SyncClient(all_.path, timeout=PATIENCE_S) as client:
                with new as worker:
                    former = client.execute("new_about")["pid"]
                    worker.stop()
                about = threads.submit(until_taken, lambda: client.execute("new_about"))
                with pair(all_, tmp_path)[0]:
                    assert about.result(PATIENCE_S)["pid"] != former
                    with pytest.raises(CommandUnknown):
                        client.execute("nothing")


async def publish(number: int, tx: Tx) -> None:
    await tx.publish("asked", {"number": number})


async def test_no_event_is_lost_between_two_versions(tmp_path: Path) -> None:
    with workers(tmp_path, app=APP) as all_:
        new, old = pair(all_, tmp_path)
        with new, old:
            async with connect(mixed.app, load_runtime(str(all_.config))) as ctx:
                for number in range(20):
                    await ctx.run(partial(publish, number))
            done, deadline = tmp_path / "done", time.monotonic() + PATIENCE_S
            while not done.exists() or len(done.read_text().split()) < 20:
                dead = cordata("dlq", "list", "--json", "--config", str(all_.config)).stdout
                assert not json.loads(dead)["items"], dead
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
            assert sorted(map(int, done.read_text().split())) == [*range(20)]
