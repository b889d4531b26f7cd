"""Guest requests pushed to hotel software: taken once, whatever the other side does."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from tests.integration.alpinebits import material
from tests.integration.alpinebits_client.peers import (
    Asked,
    Scripted,
    http,
    make_certificate,
    scripted,
)
from tests.integration.hub.guests import write
from tests.integration.hub.lenient import open_lenient, post_wix, wix
from tests.integration.hub.material import PRICE, Hub, forget_directory, open_hub
from tests.integration.push.peer import (
    PASSWORD,
    HotelSoftware,
    acked,
    book,
    second_hotel,
    taken,
    target,
)
from tests.servers.process import free_port

from alpinehub.accounts import add_account
from alpinehub.alpinebits_client.http import RequestFailed
from alpinehub.push import target as push_target
from alpinehub.push.target import find_client, list_targets, push_now, set_disabled
from cordata import trace

pytestmark = pytest.mark.usefixtures("each_store")
VERSIONS = ("2018-10", "2020-10", "2022-10", "2024-10")


@asynccontextmanager
async def pushing(
    tmp_path: Path, software: HotelSoftware, protocol: str = "2024-10"
) -> AsyncIterator[tuple[Hub, Scripted]]:
    """A hub whose user demo is pushed what waits for him."""
    async with open_hub(tmp_path, push_private=True) as hub, scripted(software.answer) as peer:
        await target(hub, "demo", peer.url, protocol)
        yield hub, peer


async def state(hub: Hub, hotel: str = "DEMO") -> dict[str, object]:
    [row] = [row for row in await list_targets(hub.ctx) if row["hotel"] == hotel]
    return row


@pytest.mark.parametrize("protocol", VERSIONS)
async def test_request_is_pushed_once_and_taken(tmp_path: Path, protocol: str) -> None:
    software = HotelSoftware()
    async with pushing(tmp_path, software, protocol) as (hub, peer):
        first, second = await book(hub, 1), await book(hub, 2)
        await hub.handle_events()
        assert sorted(software.ids) == sorted([first, second])
        assert await acked(hub) == {first: True, second: True}
        asked = peer.asked[-1]
        assert asked.action == "OTA_HotelResNotif:GuestRequests"
        assert asked.headers["x-alpinebits-clientprotocolversion"] == protocol
        assert asked.headers["authorization"] == "Basic " + base64.b64encode(
            f"hub:{PASSWORD}".encode()
        ).decode()  # fmt: skip
        assert material.problems(asked.document, protocol) == []
        cancelled = {"hotel_code": "DEMO", "status": "cancelled", "external_id": "n-1"}
        id_ = "4bf92f3577b34da6a3ce929d0e0e4736"
        # As the HTTP server does with a request that has one.
        trace.begin_request("r-1", f"00-{id_}-00f067aa0ba902b7-01")
        await hub.post(cancelled)
        await hub.handle_events()
        assert software.came[-1] == [("15", first)]
        # That of the request, with a span of its own.
        carried = peer.asked[-1].headers["traceparent"].split("-")
        assert carried[1] == id_ and carried[2] != "00f067aa0ba902b7", carried
        count = len(peer.asked)
        await hub.harness.run_periodic("sweep_pushes")
        await hub.handle_events()
        assert len(peer.asked) == count, "pushed again"
        events = await hub.rows(
            f"SELECT event FROM reservation_history WHERE reservation_id = '{first}'"
            " ORDER BY at, id"
        )
        names = [row["event"] for row in events]
        assert names.count("delivered") == 2 and names.count("acknowledged") == 2
        assert (await state(hub))["pushed_at"] is not None


async def test_event_for_a_push_is_published_only_where_requests_are_pushed(
    tmp_path: Path,
) -> None:
    wakes = "SELECT count(*) FROM event WHERE type = 'push.wanted'"
    async with open_lenient(tmp_path, push_private=True) as hub:
        await post_wix(hub)
        await book(hub)
        await hub.handle_events()
        assert await hub.one(wakes) == 0
        software = HotelSoftware()
        async with scripted(software.answer) as peer:
            await target(hub, "demo", peer.url)
            forget_directory(hub.ctx)
            for number, submission in enumerate(("a", "b")):
                await post_wix(
                    hub, wix(submissionId=submission, field__email_5139=f"{number}@x.it")
                )
            await hub.handle_events()
            assert await hub.one(wakes) == 2
            assert len(software.ids) == 4, "also the two from before"
            await set_disabled(hub.ctx, "demo", disabled=True)
        forget_directory(hub.ctx)
        await post_wix(hub, wix(submissionId="c"))
        await hub.handle_events()
        assert await hub.one(wakes) == 2


async def test_what_the_hotel_refuses_is_kept_with_its_words(tmp_path: Path) -> None:
    software = HotelSoftware()
    async with pushing(tmp_path, software) as (hub, _):
        first = await book(hub, 1)
        software.refused = {first: "kein Zimmer"}
        await hub.handle_events()
        assert await hub.one("SELECT rejected_text FROM delivery") == "kein Zimmer"
        assert (
            await hub.one("SELECT count(*) FROM reservation_history WHERE event = 'rejected'") == 1
        )
        await hub.handle_events()
        assert software.ids == [first]


async def test_what_waited_before_is_pushed_when_the_target_is_set(tmp_path: Path) -> None:
    software = HotelSoftware()
    async with open_hub(tmp_path, push_private=True) as hub, scripted(software.answer) as peer:
        ids = [await book(hub, number) for number in range(45)]
        await hub.handle_events()
        await target(hub, "demo", peer.url)
        await hub.handle_events()
        assert software.ids == ids
        assert [len(message) for message in software.came] == [20, 20, 5]


async def test_dead_server_gets_it_all_once_when_it_is_back(tmp_path: Path) -> None:
    software = HotelSoftware()
    url = f"http://127.0.0.1:{free_port()}/"
    async with open_hub(tmp_path, push_private=True) as hub:
        await target(hub, "demo", url)
        first = await book(hub)
        await hub.harness.drain(within=timedelta(seconds=60))
        told = await state(hub)
        # After 0, 5, 15 and 35 seconds, or a bit less.
        assert told["failures"] == 4 and "refused" in str(told["last_error"])
        second = await book(hub, 2)
        await hub.handle_events()
        assert (await state(hub))["failures"] == 4, "the pause was not kept"
        async with scripted(software.answer) as peer:
            await target(hub, "demo", peer.url)
            await hub.handle_events()
            assert sorted(software.ids) == sorted([first, second])
            await hub.harness.drain(within=timedelta(hours=2))
            assert len(software.ids) == 2 and (await state(hub))["failures"] == 0


@asynccontextmanager
async def dead(how: str, folder: Path) -> AsyncIterator[str]:
    """The URL of a server with which there is no connection."""
    if how == "refuses":
        yield f"http://127.0.0.1:{free_port()}/"
        return
    folder.mkdir()
    tls = make_certificate(folder) if how == "is not trusted" else None
    async with scripted(lambda asked: None, tls=tls) as peer:
        yield peer.url.replace("http:", "https:")


@pytest.mark.parametrize(
    ("how", "said"),
    [("refuses", "refused"), ("is not trusted", "certificate"), ("says nothing", "within 0.3 s")],
)
async def test_server_that_was_dead_is_pushed_no_change_of_what_it_never_got(
    tmp_path: Path, how: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    software = HotelSoftware()
    async with open_hub(tmp_path, push_private=True) as hub:
        async with dead(how, tmp_path / "tls") as url:
            await target(hub, "demo", url)
            first = await book(hub, 1, **PRICE)
            await book(hub, 2, **PRICE)
            with monkeypatch.context() as impatient:
                impatient.setattr(push_target, "HTTP_TIMEOUT_S", 0.3)
                await hub.harness.drain(within=timedelta(seconds=60))
        told = await state(hub)
        assert told["failures"] == 4 and said in str(told["last_error"])
        assert await hub.one("SELECT count(*) FROM delivery WHERE sent_at IS NOT NULL") == 0
        assert await hub.one("SELECT count(*) FROM reservation_event") == 0
        await book(hub, 1, **PRICE, adults=3)
        await hub.post({"hotel_code": "DEMO", "status": "cancelled", "external_id": "n-2"})
        async with scripted(software.answer) as peer:
            await target(hub, "demo", peer.url)
            await hub.harness.drain(within=timedelta(hours=2))
            assert software.came == [[("14", first)]]
            assert b'ResStatus="Reserved"' in peer.asked[-1].document
            await book(hub, 1, **PRICE, adults=4)
            await hub.handle_events()
            assert b'ResStatus="Modify"' in peer.asked[-1].document


async def test_longest_pause_is_15_minutes_and_nothing_is_ever_given_up(tmp_path: Path) -> None:
    answers: list[float] = []
    async with open_hub(tmp_path, push_private=True) as hub:
        harness = hub.harness

        def refuse(asked: Asked) -> bytes:
            answers.append(harness.now.timestamp())
            return b""

        async with scripted(refuse) as peer:
            await target(hub, "demo", peer.url)
            await book(hub)
            await harness.drain(within=timedelta(hours=3))
        pauses = [after - before for before, after in pairwise(answers)]
        longest = [5, 10, 20, 40, 80, 160, 320, 640, *[900] * (len(pauses) - 8)]
        # Each up to a tenth shorter, no two by as much.
        shares = [pause / most for pause, most in zip(pauses, longest, strict=True)]
        assert all(0.89 < share < 1.01 for share in shares) and len(pauses) > 15
        assert len({round(share, 3) for share in shares[-8:]}) > 1
        assert await harness.dead_letters() == []


async def test_answer_that_is_lost_brings_the_same_once_more(tmp_path: Path) -> None:
    software = HotelSoftware(otherwise=lambda asked: b"HTTP/1.1 200 OK\r\nContent-Le")
    async with pushing(tmp_path, software) as (hub, _):
        first = await book(hub)
        await hub.handle_events()
        assert await acked(hub) == {first: False}
        software.otherwise = None
        await hub.harness.drain(within=timedelta(seconds=10))
        assert software.ids == [first, first] and await acked(hub) == {first: True}


async def test_what_the_answer_does_not_name_comes_again(tmp_path: Path) -> None:
    software = HotelSoftware()
    async with pushing(tmp_path, software) as (hub, _):
        await set_disabled(hub.ctx, "demo", True)
        first, second = await book(hub, 1), await book(hub, 2)
        other = "f" * 32
        software.otherwise = lambda asked: http(taken([("14", first), ("14", other)], {other: "x"}))
        await set_disabled(hub.ctx, "demo", False)
        await hub.handle_events()
        assert await acked(hub) == {first: True, second: False}
        assert "does not name 1 of 2" in str((await state(hub))["last_error"])
        software.otherwise = None
        await hub.harness.drain(within=timedelta(seconds=10))
        assert await acked(hub) == {first: True, second: True}
        assert software.ids == [first, second, second]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (http("<html>Eva Muster</html>"), "HTTP 200, no AlpineBits"),
        (http("ERROR:Eva Muster", "401 No"), "HTTP 401"),
        (http("", "302 Found", {"Location": "http://127.0.0.1:1/"}), "HTTP 302"),
        (http("x" * 2_000_000), "larger than"),
        (b"SSH-2.0\r\n", "HTTP/1.1"),
    ],
)
async def test_failure_is_told_in_our_words_and_not_in_theirs(
    tmp_path: Path, answer: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    software = HotelSoftware(otherwise=lambda asked: answer)
    async with pushing(tmp_path, software) as (hub, _):
        await book(hub)
        await hub.harness.drain(within=timedelta(seconds=60))
        told = await state(hub)
        assert said in str(told["last_error"])
        assert "cannot be pushed to account demo" in caplog.text
        for secret in ("Muster", PASSWORD, "eva@example.com"):
            assert secret not in caplog.text and secret not in str(told)


async def test_hotel_that_is_unknown_there_delays_no_other_of_the_same_account(
    tmp_path: Path,
) -> None:
    software = HotelSoftware(unknown_hotels={"DEMO"})
    async with open_hub(tmp_path, push_private=True) as hub, scripted(software.answer) as peer:
        await second_hotel(hub)
        await add_account(hub.ctx.store, "group", "x", ["DEMO", "ROSE"])
        await target(hub, "group", peer.url)
        lost, found = await book(hub, 1), await book(hub, 2, "ROSE")
        await hub.harness.drain(within=timedelta(minutes=3))
        later = await book(hub, 3, "ROSE")
        await hub.handle_events()
        rows = await hub.rows(
            "SELECT d.reservation_id, d.acked_at FROM delivery d"
            " JOIN account u ON u.id = d.account_id WHERE u.name = 'group'"
        )
        done = {row["reservation_id"]: row["acked_at"] is not None for row in rows}
        assert done == {lost: False, found: True, later: True}
        assert "13/392" in str((await state(hub))["last_error"])
        assert (await state(hub, "ROSE"))["failures"] == 0


@pytest.mark.parametrize(
    ("answer", "within"),
    [
        (http("ERROR:oops", "500 No"), timedelta(seconds=30)),
        (b"SSH-2.0\r\n", timedelta(minutes=5)),
    ],
)
async def test_request_that_the_other_side_cannot_read_keeps_no_other(
    tmp_path: Path, answer: bytes, within: timedelta
) -> None:
    def choke(asked: Asked) -> bytes | None:
        return answer if b"Poison" in asked.document else None

    software = HotelSoftware(otherwise=choke)
    async with pushing(tmp_path, software) as (hub, _):
        bad = await book(hub, 1, last_name="Poison")
        good = [await book(hub, number) for number in range(2, 6)]
        await hub.harness.drain(within=within)
        assert await acked(hub) == {bad: False, **dict.fromkeys(good, True)}
        software.otherwise = None
        await hub.harness.drain(within=6 * within)
        assert await acked(hub) == {bad: True, **dict.fromkeys(good, True)}
        assert all(software.ids.count(one) <= 3 for one in good)


async def test_however_many_the_other_side_cannot_read_the_others_come(tmp_path: Path) -> None:
    def choke(asked: Asked) -> bytes | None:
        return http("ERROR:oops", "500 No") if b"Poison" in asked.document else None

    software = HotelSoftware(otherwise=choke)
    async with pushing(tmp_path, software) as (hub, _):
        bad = [await book(hub, number, last_name="Poison") for number in range(25)]
        good = [await book(hub, number) for number in range(30, 33)]
        await hub.harness.drain(within=timedelta(minutes=5))
        assert await acked(hub) == {**dict.fromkeys(bad, False), **dict.fromkeys(good, True)}
        assert (await state(hub))["failures"] != 0
        tried = {software.ids.count(one) for one in bad}
        assert max(tried) <= 2 * min(tried) + 2, "some are tried more than others"
        software.otherwise = None
        await hub.harness.drain(within=timedelta(minutes=5))
        assert all((await acked(hub)).values())


async def test_undeliverable_request_waits_without_a_push_of_nothing(tmp_path: Path) -> None:
    software = HotelSoftware()
    async with pushing(tmp_path, software, "2020-10") as (hub, _):
        await set_disabled(hub.ctx, "demo", True)
        held = await book(hub)
        await hub.handle_events()
        lead = '{"status":"request","adults":1,"last_name":"X","newsletter":true}'
        await hub.execute("UPDATE reservation_version SET data = ?", lead)
        await set_disabled(hub.ctx, "demo", False)
        await hub.harness.drain(within=timedelta(hours=1))
        assert software.came == [] and (await state(hub))["due_at"] is None
        first = await book(hub, 2)
        await hub.handle_events()
        await hub.harness.run_periodic("sweep_pushes")  # this process may not know yet of `on`
        await hub.handle_events()
        assert software.ids == [first] and await acked(hub) == {held: False, first: True}


async def test_cancellation_of_what_was_not_pushed_is_not_pushed(tmp_path: Path) -> None:
    software = HotelSoftware()
    async with pushing(tmp_path, software) as (hub, _):
        await set_disabled(hub.ctx, "demo", True)
        await book(hub, 1)
        await hub.post({"hotel_code": "DEMO", "status": "cancelled", "external_id": "n-1"})
        await set_disabled(hub.ctx, "demo", False)
        await hub.harness.run_periodic("sweep_pushes")
        await hub.harness.drain(within=timedelta(hours=1))
        told = await state(hub)
        assert software.came == [] and (told["due_at"], told["waiting"]) == (None, 0)


async def test_version_that_is_made_while_one_is_pushed_is_pushed_too(tmp_path: Path) -> None:
    software = HotelSoftware()
    async with open_hub(tmp_path, push_private=True) as hub:

        async def answer(asked: Asked) -> bytes:
            if len(software.came) == 0:
                # Not by a request, which would advance the clock that the push goes by.
                await write(hub, number="n-1", email="eva@example.com", last_name="Changed")
                await write(hub, number="n-2", email="eva@example.com")
            return software.answer(asked)

        async with scripted(answer) as peer:
            await target(hub, "demo", peer.url)
            await book(hub, 1)
            await hub.handle_events()
            assert b"Changed" in peer.asked[-1].document
            assert await hub.one("SELECT count(*) FROM delivery WHERE waiting = 1") == 0


async def test_lost_event_is_found_by_the_sweep(tmp_path: Path) -> None:
    software = HotelSoftware()
    async with pushing(tmp_path, software) as (hub, _):
        await hub.handle_events()
        await set_disabled(hub.ctx, "demo", True)
        first = await book(hub)
        await hub.handle_events()
        assert software.ids == []
        async with hub.ctx.store.transaction() as tx:
            await tx.execute("push_set_disabled", account_id=1, disabled_at=None)
        await hub.harness.run_periodic("sweep_pushes")
        await hub.handle_events()
        assert software.ids == [first]


async def test_push_that_is_due_after_the_longest_pause_is_due_at_once(tmp_path: Path) -> None:
    """It failed when the clock was an hour ahead, and the clock was set back."""
    software = HotelSoftware(otherwise=lambda asked: http("", "503 No"))
    async with pushing(tmp_path, software) as (hub, _):
        first = await book(hub)
        await hub.handle_events()
        await hub.execute("UPDATE push_hotel SET due_at = due_at + ?", 3600 * 1_000_000)
        software.otherwise = None
        await hub.harness.run_periodic("sweep_pushes")
        await hub.handle_events()
        assert await acked(hub) == {first: True}


async def test_now_keeps_no_pause(tmp_path: Path) -> None:
    software = HotelSoftware(otherwise=lambda asked: http("", "503 No"))
    async with pushing(tmp_path, software) as (hub, _):
        first = await book(hub)
        await hub.handle_events()
        await push_now(hub.ctx, "demo")
        await hub.handle_events()
        assert (await state(hub))["failures"] == 2
        software.otherwise = None
        await push_now(hub.ctx, "demo")
        await hub.handle_events()
        assert await acked(hub) == {first: True}


async def test_private_addresses_are_called_only_where_the_operator_says_so(
    tmp_path: Path,
) -> None:
    software = HotelSoftware()
    async with open_hub(tmp_path) as hub, scripted(
        software.answer, tls=make_certificate(tmp_path)
    ) as peer:  # fmt: skip
        await target(hub, "demo", peer.url.replace("http:", "https:"))
        await book(hub)
        await hub.handle_events()
        assert "may not be called" in str((await state(hub))["last_error"])
        assert peer.asked == []
        with pytest.raises(RequestFailed, match="may not be called") as refused:
            client = await find_client(hub.ctx, "demo")
            await client.call("OTA_Ping:Handshaking", b"<OTA_PingRQ/>")
        assert "push_private" in refused.value.hint
