"""Servers that never answer, beside one that does, under a real `cordata server` of one worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.alpinebits_client.peers import command, scripted
from tests.integration.hub.material import open_hub
from tests.integration.push.peer import HotelSoftware, book, second_hotel, target
from tests.integration.push.test_push_command import push_private
from tests.integration.server.running import forked_server
from tests.waiting import until_async

#: More than a worker handles at once of most other events.
SLOW = 20
#: A silent server is waited for longer.
PATIENCE_S = 25.0


async def test_servers_that_never_answer_delay_no_other(tmp_path: Path) -> None:
    software = HotelSoftware()
    config = push_private(tmp_path, allowed=True)
    async with scripted(lambda asked: None) as silent, scripted(software.answer) as peer:
        async with open_hub(tmp_path, push_private=True) as hub:
            names = [f"slow-{number}" for number in range(SLOW)]
            await second_hotel(hub, *names)
            await book(hub, 1, "ROSE")
            for name in names:
                await target(hub, name, silent.url)
            await target(hub, "demo", peer.url)
        options = ("--config", config)
        with forked_server(None, *options, app="alpinehub.app:app", workers=1) as running:
            await asyncio.to_thread(running.ready)
            await until_async(lambda: len(silent.asked) == SLOW, 60.0)
            async with open_hub(tmp_path, seed=False, push_private=True) as hub:
                first = await book(hub, 2)
            await until_async(lambda: software.ids == [first], PATIENCE_S)

            async def is_done() -> bool:  # the answer is stored a moment after it was given
                listed = await command("account", "push", "list", "--json", "--config", config)
                waiting = {row["name"]: row["waiting"] for row in listed.json["items"]}
                assert waiting["slow-7"] == 1
                return bool(waiting["demo"] == 0)

            await until_async(is_done, PATIENCE_S)
