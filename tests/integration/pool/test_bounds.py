"""What one caller may not do to all others: long names, far deadlines, sessions without end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
from tests.integration.cli.command import cordata
from tests.integration.pool.test_together import together

from cordata.core.pool.message import ErrorFrame, GlobalOp
from cordata.errors import CommandFailed, SessionNotFound
from cordata.pool import Client, SyncClient

PATIENCE_S = 30.0
LONGEST = "\u00e9" * 200  # characters, not bytes
TOO_LONG = "n" * 201


def test_names_have_at_most_200_characters(tmp_path: Path) -> None:
    with together(tmp_path) as all_, all_.worker():
        with SyncClient(all_.manager.path, timeout=PATIENCE_S) as client:
            sessions, shared = client.sessions, client.globals
            refused: list[Callable[[], object]] = [
                lambda: shared.set(**{TOO_LONG: 1}),
                lambda: shared.get(TOO_LONG),
                lambda: shared.delete(TOO_LONG),
                lambda: sessions.create(TOO_LONG),
                lambda: sessions.create(data={TOO_LONG: 1}),
                lambda: sessions.create(worker=TOO_LONG),
                lambda: sessions.get(TOO_LONG),
                lambda: sessions.update("s", set={TOO_LONG: 1}),
                lambda: sessions.update("s", delete=[TOO_LONG]),
                lambda: sessions.count("s", **{TOO_LONG: 1}),
                lambda: sessions.touch(TOO_LONG),
                lambda: sessions.delete(TOO_LONG),
                lambda: client.execute("echo", session=TOO_LONG),
                lambda: client.execute(TOO_LONG),
            ]
            for number, act in enumerate(refused):
                with pytest.raises(ValueError, match=r"201 characters.* 200") as caught:
                    act()
                    pytest.fail(f"number {number} was taken")
                assert TOO_LONG not in str(caught.value)  # it may be of any size
            sessions.create(LONGEST, data={LONGEST: 1})
            shared.set(**{LONGEST: 2})
            assert sessions.count(LONGEST, **{LONGEST: 3}) == {LONGEST: 3}
            before = client.execute("remember", {"set": {LONGEST: 4}}, session=LONGEST)
            assert (before["data"], before["counters"]) == ({LONGEST: 1}, {LONGEST: 3})
            for name in ("set", "gset", "count"):
                with pytest.raises(CommandFailed, match=r"201 characters.* 200") as failed:
                    client.execute("remember", {name: {TOO_LONG: 5}}, session=LONGEST)
                assert failed.value.type == "ValueError"
            assert sessions.get(LONGEST).data == {LONGEST: 4}
            assert shared.get() == {LONGEST: 2}
        # Who speaks the protocol without our client is refused, too.
        with all_.manager.client() as peer:
            peer.send(GlobalOp(id=1, op="delete", delete=[TOO_LONG]))
            error = peer.expect(ErrorFrame)
            assert (error.id, error.code, "200" in error.m) == (1, "protocol", True)


@pytest.mark.parametrize("timeout_s", [2.2e6, 1e12, inf])
async def test_deadline_may_be_as_far_as_anybody_likes(tmp_path: Path, timeout_s: float) -> None:
    with together(tmp_path) as all_, all_.worker():

        def sync_calls() -> None:
            with SyncClient(all_.manager.path, timeout=timeout_s) as client:
                assert client.execute("echo", 1) == 1
                assert client.execute("echo", 1, queue_timeout=timeout_s) == 1
                parts = client.stream("numbers", 20, credit=1)
                assert next(parts) == 0
                time.sleep(0.1)  # its command waits for credit
                assert list(parts) == [*range(1, 20)]

        await asyncio.to_thread(sync_calls)
        async with Client(all_.manager.path, timeout=timeout_s) as client:
            assert await client.execute("echo", 1) == 1
            for command in ("numbers", "numbers_async"):
                found = []
                async for part in client.stream(command, 5, credit=1):
                    found.append(part)
                    await asyncio.sleep(0.02)
                assert found == [*range(5)]
        arguments = ("--timeout", str(timeout_s), "--config", str(all_.config))
        result = await asyncio.to_thread(cordata, "call", "echo", "--json", "1", *arguments)
        assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr


async def test_sessions_that_expire_together_are_gone_soon(tmp_path: Path) -> None:
    with together(tmp_path) as all_:
        async with Client(all_.manager.path, timeout=PATIENCE_S, operator=True) as client:
            for _ in range(20):
                creating = (client.sessions.create(ttl_s=2.0) for _ in range(500))
                made = await asyncio.gather(*creating)
            deadline = time.monotonic() + PATIENCE_S
            while (await client.status())["sessions"]["count"]:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            with pytest.raises(SessionNotFound):
                await client.sessions.get(made[-1].id)
