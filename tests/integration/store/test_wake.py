"""Wake-ups between real processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from pathlib import Path

from tests.integration.store.parts import child, deposit, opened

from cordata.store import Tx
from cordata.store.sqlite.wake import WakeUps


async def test_other_process_is_woken_when_a_unit_commits(tmp_path: Path) -> None:
    async with opened(tmp_path) as store, child("watch", tmp_path, "t") as other:
        assert await other.line() == "ready"

        async def unit(tx: Tx) -> None:
            await tx.execute("account.add_once", id="a", balance=0)
            tx.notify("t")

        for _ in range(3):
            await store.run(unit)
            assert await other.line() == "woken"
            await asyncio.sleep(0.02)


async def test_socket_of_a_dead_process_is_removed_when_others_notify(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        async with child("watch", tmp_path, "t") as other:
            assert await other.line() == "ready"
            assert len(os.listdir(tmp_path / "wake")) == 2
            await other.kill()
        store.notify("t")
        assert len(os.listdir(tmp_path / "wake")) == 1
    assert os.listdir(tmp_path / "wake") == []


async def test_process_is_found_again_when_the_runtime_directory_was_emptied(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    one, two = WakeUps(tmp_path, loop), WakeUps(tmp_path, loop)
    try:
        shutil.rmtree(tmp_path / "wake")
        for process in (one, two):
            process.look()
        one.notify(["t"])
        assert await two.topic("t").wait(60.0)
    finally:
        for process in (one, two):
            process.close()
    assert os.listdir(tmp_path / "wake") == []


async def test_notify_goes_on_when_a_reader_never_empties_its_socket(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
            deaf.bind(str(tmp_path / "wake" / "1-deaf.sock"))
            for number in range(3000):
                store.notify(f"t{number}")
            await deposit(store, "a")
            assert (tmp_path / "wake" / "1-deaf.sock").exists()


async def test_only_this_process_is_woken_when_there_is_no_runtime_directory(
    tmp_path: Path,
) -> None:
    (tmp_path / "wake").write_text("in the way")
    async with opened(tmp_path) as store:
        store.notify("t")
        assert await store.wait("t", 60.0)


async def test_wake_ups_work_when_the_directory_is_too_deep_for_a_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    async with opened(deep) as one, opened(deep) as two:
        one.notify("t")
        assert await two.wait("t", 60.0)
