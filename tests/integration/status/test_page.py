"""The status page of a real `cordata server`: who may see it, what it shows, what it does."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.integration.cli.command import cordata, write_config
from tests.integration.metrics.scrape import PATIENCE_S, get
from tests.integration.status.running import APP, status_page
from tests.servers.process import free_port
from tests.waiting import until

from cordata import connect
from cordata.app import App
from cordata.context import runtime_store
from cordata.status.page.app import MAX_STREAMS
from cordata.store import Tx

SECRET = "guest@example.org"


def write_mail(config: Path) -> None:
    """A mail that waits, and an alert."""

    async def unit(tx: Tx) -> None:
        await tx.send_mail(to=[SECRET], subject=SECRET, text=SECRET)

    async def main() -> None:
        async with connect(App("test"), config) as ctx:
            await runtime_store(ctx).run(unit)

    asyncio.run(main())


def test_page_without_token_or_session_is_a_login(tmp_path: Path) -> None:
    with status_page(tmp_path, text='[http]\ntrusted_proxies = ["127.0.0.1"]\n') as page:
        assert page.ask("/")[0] == 303 and page.headers["location"] == "/login"
        assert page.ask("/configuration")[0] == page.ask("/trace?id=a")[0] == 303
        assert page.ask("/live")[0] == page.ask("/status.json")[0] == 401
        assert page.ask("/", authorization="Bearer wrong")[0] == 303
        assert page.ask("/", cookie=f"cordata-status=9999999999.a.{'0' * 64}")[0] == 303
        assert page.ask("/replay", "POST", "event=a&group=b", origin=page.url)[0] == 303
        page.log_in()
        assert page.browse("/")[0] == 200
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert "unsafe" not in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"

        page.ask("/login", "POST", urlencode({"token": page.token}), origin=page.url)
        assert {"HttpOnly", "SameSite=Strict"} <= set(page.headers["set-cookie"].split("; "))
        # A form of another site, or of another port of this host.
        form = {"event": "a", "group": "b"}
        right = {"cookie": page.cookie, "origin": page.url}
        assert page.ask("/replay", "POST", urlencode(form), **right)[0] == 303
        for wrong in ("http://evil.example", "http://127.0.0.1:1", "null", "http://["):
            headers = {**right, "origin": wrong}
            assert page.ask("/replay", "POST", urlencode(form), **headers)[0] == 403
            token = urlencode({"token": page.token})
            assert page.ask("/login", "POST", token, origin=wrong)[0] == 403
        assert page.ask("/replay", "POST", urlencode(form), cookie=page.cookie)[0] == 403
        # Behind a proxy with TLS: not what the same address sends without.
        for scheme, status in (("https", 303), ("http", 403)):
            headers = {**right, "origin": f"{scheme}://{page.address}"}
            proxied = page.ask(
                "/replay", "POST", urlencode(form), x_forwarded_proto="https", **headers
            )
            assert proxied[0] == status

        # Two workers count for themselves; sessions go on.
        body, status = urlencode({"token": "wrong" * 5}), 403
        while status == 403:
            status, _ = page.ask("/login", "POST", body, origin=page.url)
        assert status == 429 and int(page.headers["retry-after"]) > 0
        assert page.browse("/")[0] == 200
        assert page.token not in page.server.log


def test_session_is_found_when_other_programs_of_the_host_have_cookies(tmp_path: Path) -> None:
    with status_page(tmp_path) as page:
        page.log_in()
        for other in ('prefs={"a":1}', "path=/", "flag", 'quoted="a', "other-cordata-status=a"):
            assert page.ask("/", cookie=f"{other}; {page.cookie}; {other}")[0] == 200, other


def test_page_shows_what_the_command_prints_and_no_personal_data(tmp_path: Path) -> None:
    mail = '[mail]\nhost = "127.0.0.1"\nport = 9\n[store]\nurl = "sqlite:"\n'
    with status_page(tmp_path, text=mail) as page:
        page.publish("thing.refused")
        write_mail(page.config)
        shown = page.until_shown("/replay")
        shown = page.until_shown("/acknowledge")
        assert "counted.refused" in shown and "PermanentError" in shown
        assert SECRET not in shown and '"n"' not in shown and "&#34;n&#34;" not in shown

        document = json.loads(page.program("/status.json")[1])
        printed = json.loads(cordata("status", "--json", "--config", str(page.config)).stdout)
        assert set(document) == set(printed)
        assert document["state"] == printed["state"] == "degraded"

        [letter] = json.loads(
            cordata("dlq", "list", "--json", "--config", str(page.config)).stdout
        )["items"]
        status, trace = page.program(f"/trace?id={letter['event_id']}")
        assert status == 200 and "thing.refused" in trace and "counted.refused" in trace
        assert "Nothing is known" in page.program("/trace?id=unknown")[1]
        assert page.program("/trace?id=%00")[0] == 400

        configuration = page.program("/configuration")[1]
        assert "<strong>› port = 9</strong>" in configuration
        assert "max_headers = 100  # default" in configuration
        assert "status-token = ********" in configuration and page.token not in configuration


def test_tables_and_tiles_have_what_the_store_and_the_processes_have(tmp_path: Path) -> None:
    mail = '[mail]\nhost = "127.0.0.1"\nport = 9\n'
    with status_page(tmp_path, text=mail) as page:
        page.publish("thing.refused")
        write_mail(page.config)
        ran = cordata("job", "nightly", "--config", str(page.config))
        assert ran.returncode == 1, ran
        page.until_shown("/replay")
        page.until_shown("/acknowledge")
        document: dict[str, Any] = {}

        def is_counted() -> bool:
            page.publish("thing.done")
            document.update(json.loads(page.program("/status.json")[1]))
            rates = [one["requests_per_s"] for one in document["http"]]
            return max(rates, default=0.0) > 0.0 and document["handled"].get("counted.done", 0) > 0

        until(is_counted, what="rates")
        groups = {one["group"]: one for one in document["groups"]}
        assert (groups["counted.refused"]["dead"], groups["counted.done"]["dead"]) == (1, 0)
        [job] = document["jobs"]
        assert (job["job"], job["scope"], job["period"]) == ("nightly", "b", "2026-01-01")
        assert (job["state"], job["attempts"]) == ("failed", 1) and job["started_s"] >= 0.0
        mails = document["mail"]
        assert mails["waiting"] >= 1 and mails["oldest_s"] >= 0.0 and mails["configured"]
        assert any("counted.refused" in one["title"] for one in document["alerts"])
        assert document["store"]["database"] and document["store"]["wal_bytes"] >= 0
        assert document["disk"]["free_bytes"] <= document["disk"]["total_bytes"]
        assert {one["worker"]: one["ready"] for one in document["pool"]} == {"0": 1, "1": 1}
        assert {one["unit"] for one in document["http"]} == {"worker@0", "worker@1"}
        primary = document["primary"]
        assert primary["term"] == 1 and not (primary["released"] or primary["gone"])

        shown = " ".join(re.sub(r"<[^>]*>", " ", page.program("/")[1]).split())
        assert f"Primary {primary['holder'].rpartition('/')[0]} term 1, since" in shown
        assert "Workers 2 cordata" in shown and re.search(r"Requests [0-9.]+/s p99 [0-9.]+", shown)
        assert re.search(r"Events degraded [0-9.]+/s [0-9]+ ready.* 0 retrying, 1 dead", shown)
        assert re.search(r"Pool [0-9] busy [0-9] ready, 0 waiting", shown)
        assert re.search(r"Mail [0-9] wait 0 failed in 24 hours", shown)
        assert re.search(r"nightly b 2026-01-01 failed 1", shown)
        printed = cordata("status", "--config", str(page.config)).stdout
        for words in ("nightly +b +2026-01-01 +failed +1", r"counted.refused .* 1\b", "worker@0 "):
            assert re.search(words, printed), printed


def test_actions_do_what_the_commands_do(tmp_path: Path) -> None:
    with status_page(tmp_path, text='[mail]\nhost = "127.0.0.1"\nport = 9\n') as page:
        page.publish("thing.refused")
        write_mail(page.config)
        page.until_shown("/replay")
        page.until_shown("/acknowledge")

        def listed(*words: str) -> list[dict[str, object]]:
            done = cordata(*words, "--json", "--config", str(page.config))
            items: list[dict[str, object]] = json.loads(done.stdout)["items"]
            return items

        [letter] = listed("dlq", "list")
        event, group = str(letter["event_id"]), str(letter["group"])
        assert page.program("/replay", "POST", event=event, group="other")[0] == 303
        assert page.headers["location"] == "/?done=nothing"
        assert page.program("/replay", "POST", event=event, group=group)[0] == 303
        assert page.headers["location"] == "/?done=replay"
        page.server.until_logged(f"replay {event} {group} by 127.0.0.1: done")
        # It is handled again, and fails again.
        page.server.until_logged(f"event {event} failed", count=2)

        [alert] = listed("alerts", "list")[-1:]
        assert page.program("/acknowledge", "POST", alert=str(alert["fingerprint"]))[0] == 303
        assert page.headers["location"] == "/?done=acknowledge"
        [mail] = listed("mail", "list")
        assert page.program("/retry", "POST", mail=str(mail["id"]))[0] == 303
        assert page.headers["location"] == "/?done=retry"
        assert page.program("/retry", "POST", mail="99")[0] == 303
        assert page.headers["location"] == "/?done=nothing"
        assert page.program("/retry", "POST", mail="one")[0] == 400
        assert page.program("/drop", "POST", event=event)[0] == 404
        assert page.program("/", "DELETE")[0] == 405


def test_stream_sends_changes_until_the_worker_stops(tmp_path: Path) -> None:
    with status_page(tmp_path) as page:
        page.log_in()
        connection = http.client.HTTPConnection(page.address, timeout=PATIENCE_S)
        connection.request("GET", "/live", headers={"cookie": page.cookie})
        stream = connection.getresponse()
        assert stream.getheader("content-type") == "text/event-stream"

        def until_sent(text: str) -> None:
            while True:
                line = stream.readline().decode()
                assert line, "the stream has ended"
                if line.startswith("data: ") and text in json.dumps(json.loads(line[6:])):
                    return

        until_sent("verdict")
        page.publish("thing.refused")
        until_sent("/replay")

        # More than two workers may send.
        more = [http.client.HTTPConnection(page.address, timeout=PATIENCE_S) for _ in range(60)]
        for one in more:
            one.request("GET", "/live", headers={"cookie": page.cookie})
        statuses = [one.getresponse().status for one in more]
        assert statuses.count(200) <= 2 * MAX_STREAMS - 1 and statuses.count(503) >= 1
        page.server.signal(signal.SIGTERM)
        assert page.server.wait() == 0  # the streams do not hold it up
        for one in (connection, *more):
            one.close()


def test_stream_by_token_goes_on_while_others_try_wrong_ones(tmp_path: Path) -> None:
    with status_page(tmp_path) as page:
        connection = http.client.HTTPConnection(page.address, timeout=PATIENCE_S)
        connection.request("GET", "/live", headers={"authorization": f"Bearer {page.token}"})
        stream = connection.getresponse()
        assert stream.status == 200
        for _ in range(60):  # until both workers check none for a while
            page.ask("/status.json", authorization="Bearer wrong")
        assert page.ask("/status.json", authorization="Bearer wrong")[0] == 429
        page.publish("thing.refused")
        while "/replay" not in (line := stream.readline().decode()):
            assert line, "the stream has ended"
        connection.close()
        assert "Misuse" not in page.server.log


def test_another_worker_serves_a_unix_socket_when_its_owner_is_killed(tmp_path: Path) -> None:
    listen = str(tmp_path / "run" / "status.sock")
    with status_page(tmp_path, listen=listen) as page:
        until(lambda: os.path.exists(listen), what="the socket")

        def answers() -> bool:
            try:
                return bool(get(listen, "/login")[0] == 200)
            except OSError:
                return False

        until(answers, what="an answer")
        os.kill(page.server.pid_of("worker@0"), signal.SIGKILL)
        until(answers, what="an answer of the other one")


def test_start_without_a_token_says_how_to_make_one(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    config = write_config(tmp_path, f'[status]\nlisten = "{listen}"\n', APP)
    for wrong, text in ((None, "is missing"), ("short", "is shorter than 20 characters")):
        (tmp_path / "credentials").mkdir(exist_ok=True)
        if wrong is not None:
            (tmp_path / "credentials" / "status-token").write_text(wrong)
        for words in (["worker", "0"], ["config", "check"], ["doctor"]):
            done = cordata(*words, "--config", str(config))
            assert f"the credential status-token {text}" in done.stdout + done.stderr, words
            assert "cordata credentials init status-token" in done.stdout + done.stderr
            assert done.returncode == (1 if words == ["doctor"] else 78)
