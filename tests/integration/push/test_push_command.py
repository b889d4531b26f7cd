"""`alpinehub account push` on a real store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.alpinebits_client.peers import (
    Done,
    command,
    http,
    make_certificate,
    scripted,
)
from tests.integration.hub.command import configure
from tests.integration.hub.material import open_hub

SECRET = "s3cret-of-the-peer"


def push_private(folder: Path, *, allowed: bool) -> str:
    """A configuration with this setting."""
    return str(configure(folder, f"[alpinehub]\npush_private = {str(allowed).lower()}\n"))


@pytest.mark.usefixtures("each_store")
async def test_target_is_set_listed_and_taken_away(tmp_path: Path) -> None:
    config = push_private(tmp_path, allowed=True)

    async def push(*words: str, given: str = "") -> Done:
        return await command("account", "push", *words, "--config", config, given=given)

    async with open_hub(tmp_path) as hub:
        url = ("--url", "http://127.0.0.1:9/x", "--login", "hub")
        made = await push(
            "set", "demo", *url, "--version", "2022-10", "--json", given=f"{SECRET}\n"
        )
        assert made.code == 0 and made.json["protocol"] == "2022-10"
        stored = await hub.one("SELECT secret FROM push_target")
        assert SECRET.encode() not in bytes(stored)
        [listed] = (await push("list", "--json")).json["items"]
        assert (listed["name"], listed["hotel"], listed["waiting"]) == ("demo", "DEMO", 0)
        table = await push("list")
        assert table.out.splitlines()[0].split()[:3] == ["NAME", "HOTEL", "URL"]
        for words in (("off", "demo"), ("on", "demo"), ("now", "demo")):
            assert (await push(*words)).code == 0
        every = [made, table, await push("list", "--json")]
        assert all(SECRET not in one.out + one.err for one in every)
        await push("off", "demo")
        late = await push("now", "demo")
        assert late.code == 1 and "alpinehub account push on demo" in late.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "nobody", "--url", "https://x/"), "there is no account"),
        (("set", "demo", "--url", "http://pms.example/"), "https:// only"),
        (("set", "demo", "--url", "ftp://pms.example/"), "begins with https://"),
        (("set", "demo", "--url", "https://u:p@pms.example/"), "do not belong"),
        (("set", "demo", "--url", "https://x/", "--version", "2017-10"), "2017-10"),
        (("on", "demo"), "has no push target"),
        (("test", "demo"), "has no push target"),
    ],
)
async def test_what_cannot_be_is_told_with_what_can(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    config = push_private(tmp_path, allowed=False)
    async with open_hub(tmp_path):
        login = ("--login", "hub") if words[0] == "set" else ()
        done = await command("account", "push", *words, *login, "--config", config, given="x\n")
        assert done.code in (1, 2) and said in done.err


async def test_test_shakes_hands_and_brings_nothing(tmp_path: Path) -> None:
    config = push_private(tmp_path, allowed=True)
    common = json.dumps(
        {
            "versions": [
                {
                    "version": "2024-10",
                    "actions": [{"action": "action_OTA_HotelResNotif_GuestRequests"}],
                }
            ]
        }
    )
    answer = (
        '<OTA_PingRS xmlns="http://www.opentravel.org/OTA/2003/05" Version="8.000"><Success/>'
        '<Warnings><Warning Type="11" Status="ALPINEBITS_HANDSHAKE">'
        f"{common}</Warning></Warnings><EchoData>x</EchoData></OTA_PingRS>"
    )
    async with open_hub(tmp_path), scripted(lambda asked: http(answer)) as peer:
        words = ("set", "demo", "--url", peer.url, "--login", "hub")
        await command("account", "push", *words, "--config", config, given=f"{SECRET}\n")
        done = await command("account", "push", "test", "demo", "--config", config)
        assert done.code == 0 and "action_OTA_HotelResNotif_GuestRequests" in done.out
        assert [one.action for one in peer.asked] == ["OTA_Ping:Handshaking"]


async def test_test_says_where_to_add_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    config = push_private(tmp_path, allowed=True)
    tls = make_certificate(tmp_path)
    async with open_hub(tmp_path), scripted(lambda asked: None, tls=tls) as peer:
        url = peer.url.replace("http:", "https:")
        words = ("set", "demo", "--url", url, "--login", "hub")
        await command("account", "push", *words, "--config", config, given=f"{SECRET}\n")
        done = await command("account", "push", "test", "demo", "--config", config)
        assert done.code == 3 and "is not valid" in done.err
        assert "hint: add the certificate of its authority to those that" in done.err
