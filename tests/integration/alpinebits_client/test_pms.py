"""`alpinehub pms` against the hub, on real sockets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integration.alpinebits_client.peers import PATH, command
from tests.integration.hub.material import BOOKING, PRICE, open_hub
from tests.integration.hub.served import served

from alpinehub.alpinebits.protocol import PROTOCOLS

_LOGIN = ("--user", "demo")
_HOTEL = ("--hotel", "DEMO")


@pytest.mark.parametrize("version", PROTOCOLS)
@pytest.mark.usefixtures("each_store")
async def test_poll_and_ack_take_a_request_once_in_each_version(
    tmp_path: Path, version: str
) -> None:
    async with open_hub(tmp_path) as hub, served(hub, PATH) as url:
        to = ("--url", url, *_LOGIN, "--version", version, "--json")
        unique_id = (await hub.post({**BOOKING, "status": "reservation", **PRICE})).id
        handshake = await command("pms", "handshake", *to)
        assert handshake.code == 0 and handshake.json["gzip"] is True
        told = handshake.json.get("versions", {}).get(version) or handshake.json["capabilities"]
        assert "action_OTA_Read" in told

        first = await command("pms", "poll", *to, *_HOTEL)
        assert first.code == 0 and first.json["invalid"] is None
        [request] = first.json["requests"]
        assert (request["type"], request["id"]) == ("14", unique_id)
        assert request["data"]["last_name"] == "Muster" and request["data"]["total"] == "1450.50"
        again = await command("pms", "poll", *to, *_HOTEL, "--ack")
        polled, acked = map(json.loads, again.out.splitlines())
        assert len(polled["requests"]) == 1 and acked["outcome"] == "success"
        empty = await command("pms", "poll", *to, *_HOTEL)
        assert empty.code == 0 and empty.json["requests"] == []
        old = await command("pms", "poll", *to, *_HOTEL, "--since", "2020-01-01T00:00:00Z")
        assert [one["id"] for one in old.json["requests"]] == [unique_id]
        assert await hub.one("SELECT acked_at IS NOT NULL FROM delivery") == 1


async def test_ack_and_refuse_tell_the_hub_by_id(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, served(hub, PATH) as url:
        to = ("--url", url, *_LOGIN)
        first = (await hub.post(BOOKING)).id
        second = (await hub.post({**BOOKING, "external_id": "n-2"})).id
        await command("pms", "poll", *to, *_HOTEL)
        acked = await command("pms", "ack", *to, "--id", first, "--gzip")
        assert acked.code == 0 and acked.out.splitlines()[-1] == "1 acknowledged"
        refused = await command("pms", "refuse", *to, "--id", second, "--text", "kein Zimmer & Bad")
        assert refused.code == 0
        said = await hub.rows("SELECT reservation_id, rejected_text FROM delivery ORDER BY 1")
        assert {row["reservation_id"]: row["rejected_text"] for row in said} == {
            first: None,
            second: "kein Zimmer & Bad",
        }
        unknown = await command("pms", "ack", *to, "--id", "nobody:15", "--json")
        assert unknown.code == 0 and unknown.json["outcome"] == "advisory"
        assert unknown.json["remarks"][0]["record"] == "nobody"


async def test_poll_shows_a_table_that_moves_no_cursor(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, served(hub, PATH) as url:
        await hub.post({**BOOKING, "last_name": "Mu\u202ester", "message": "x"})
        shown = await command("pms", "poll", "--url", url, *_LOGIN, *_HOTEL)
        head, row = shown.out.splitlines()[1:3]
        assert head.split()[:3] == ["TYPE", "ID", "STATUS"]
        assert "Eva Mu\\u202ester" in row and "2027-02-01" in row and "2 + 8, 5" in row
        raw = await command("pms", "poll", "--url", url, *_LOGIN, *_HOTEL, "--raw")
        assert raw.out.startswith("<?xml") and "<Surname>" in raw.out


async def test_poll_fails_with_the_servers_words_when_the_hotel_is_unknown(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, served(hub, PATH) as url:
        no = await command("pms", "poll", "--url", url, *_LOGIN, "--hotel", "NOPE", "--json")
        assert no.code == 1 and no.json["outcome"] == "error"
        assert no.json["remarks"][0]["code"] == "392"


@pytest.mark.parametrize("version", PROTOCOLS)
async def test_free_rooms_are_pushed_in_each_version(tmp_path: Path, version: str) -> None:
    async with open_hub(tmp_path) as hub, served(hub, PATH) as url:
        # What is agreed upon first binds us as well.
        assert (await command("pms", "handshake", "--url", url, *_LOGIN)).code == 0
        to = ("--url", url, *_LOGIN, *_HOTEL, "--version", version, "--json")
        period = ("--room-type", "DZ", "--from", "2027-02-01", "--to", "2027-02-28", "--free", "3")
        complete = await command("pms", "push-freerooms", *to, *period, "--complete")
        assert complete.code == 0 and complete.json["outcome"] == "success"
        delta = await command("pms", "push-freerooms", *to, *period, "--gzip")
        assert delta.code == 0
        turned = ("--room-type", "DZ", "--from", "2027-03-01", "--to", "2027-02-01")
        wrong = await command("pms", "push-freerooms", *to, *turned)
        assert wrong.code == 1 and wrong.json["outcome"] == "error"
        reset = await command("pms", "push-freerooms", *to, "--complete", "--reset")
        assert reset.code == 0


async def test_send_prints_the_answer_to_any_document(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, served(hub, PATH) as url:
        asked = tmp_path / "ping.xml"
        asked.write_text(
            '<OTA_PingRQ xmlns="http://www.opentravel.org/OTA/2003/05" Version="8.000">'
            "<EchoData>{}</EchoData></OTA_PingRQ>"
        )
        action = ("--action", "OTA_Ping:Handshaking", "--file", str(asked))
        sent = await command("pms", "send", "--url", url, *_LOGIN, *action)
        assert sent.code == 0 and "<EchoData>{}</EchoData>" in sent.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("poll", "--url", "ftp://x/", "--user", "u", "--hotel", "H"), "https://"),
        (("poll", "--url", "http://u:p@x/", "--user", "u", "--hotel", "H"), "do not belong"),
        (("poll", "--url", "http://127.0.0.1/", "--user", "u"), "--hotel CODE"),
        (("poll", "--url", "http://127.0.0.1/", "--user", "a:b", "--hotel", "H"), "colon"),
        (("ack", "--url", "http://127.0.0.1/", "--user", "u", "--id", "x:3"), "ID:15"),
        (
            ("push-freerooms", "--url", "http://127.0.0.1/", "--user", "u", "--hotel", "H"),
            "--from and --to",
        ),
        (
            ("push-freerooms", "--url", "http://127.0.0.1/", "--user", "u", "--reset"),
            "--hotel CODE",
        ),
    ],
)
async def test_wrong_usage_is_told_before_anything_is_sent(
    words: tuple[str, ...], said: str
) -> None:
    done = await command("pms", *words)
    assert done.code == 2 and said in done.err


async def test_password_comes_from_a_file_or_not_at_all(tmp_path: Path) -> None:
    async with open_hub(tmp_path) as hub, served(hub, PATH) as url:
        words = ("pms", "poll", "--url", url, *_LOGIN, *_HOTEL)
        missing = await command(*words, password="")
        assert missing.code == 2 and "ALPINEHUB_PASSWORD" in missing.err
        given = await command(*words, "--password-file", "-", password="", given="demo\n")
        assert given.code == 0
        (tmp_path / "empty").write_text("\n")
        empty = await command(*words, "--password-file", str(tmp_path / "empty"))
        assert empty.code == 2 and "contains no password" in empty.err
        wrong = await command(*words, "--json", password="s3cret-wrong")
        assert wrong.code == 3 and wrong.json["status"] == 401
        assert "check the user name" in wrong.err and "s3cret" not in wrong.out + wrong.err
