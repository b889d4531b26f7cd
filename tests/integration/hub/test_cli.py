"""The `alpinehub` command on a real store."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.alpinebits_client.peers import Done
from tests.integration.hub.command import Run, configure
from tests.integration.hub.lenient import open_lenient, post_form, post_wix, wix
from tests.integration.hub.material import BOOKING, open_hub
from tests.servers import fork_server

from alpinehub.hotels import NewHotel, add_hotel
from alpinehub.login import authenticate
from alpinehub.sources import add_source


@pytest.mark.usefixtures("each_store")
async def test_command_manages_a_hotel_from_first_to_last(tmp_path: Path, run: Run) -> None:
    async with open_hub(tmp_path, seed=False) as hub:
        await run("hotel", "add", "ROSE", "--name", "Rosé", "--report-email", "a@b.it")
        made = (await run("account", "add", "pms", "--hotel", "ROSE", "--json")).json
        source = (await run("source", "add", "ROSE", "web", "--json")).json
        sent: dict[str, str | None] = {"x-webhook-secret": source["secret"]}
        assert (await hub.post({**BOOKING, "hotel_code": "ROSE"}, headers=sent)).status == 200
        assert await authenticate(hub.ctx, "pms", made["password"]) is not None
        done = await run("source", "rotate", "ROSE", "web", "--secret-stdin", given="mine\n")
        assert "mine" not in done.out
        listed = await run("source", "list", "--json")
        assert source["secret"] not in listed.out and listed.json["items"][0]["hotel"] == "ROSE"
        [hotel] = (await run("hotel", "list", "--json")).json["items"]
        assert (hotel["name"], hotel["accounts"], hotel["sources"]) == ("Rosé", 1, 1)
        assert "made" in (await run("demo")).out and "already" in (await run("demo")).out
        for words in (
            ("account", "disable", "pms"),
            ("account", "enable", "pms"),
            ("hotel", "disable", "ROSE"),
        ):
            await run(*words)
        table = await run("account", "list")
        assert table.out.splitlines()[0].split()[:2] == ["NAME", "HOTELS"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("hotel", "disable", "ROZE"), 1, "did you mean ROSE?"),
        (("account", "add", "x", "--hotel", "ROZE"), 1, "did you mean ROSE?"),
        (("account", "rotate", "pms", "--password-stdin"), 2, "input contains no password"),
        (("hotel", "frob"), 2, "No such command"),
        (("hotel", "list", "--config", "/nonexistent.toml"), 78, "nonexistent"),
        (("demo", "--config", "/nonexistent.toml"), 78, "nonexistent"),
        (("hotel", "messages", "ROSE", "--limit", "-1"), 2, "1<=x<=1000"),
        (("inbox", "list", "--hotel", "ROZE"), 1, "did you mean ROSE?"),
        (("inbox", "list", "--source", "web"), 1, "see `alpinehub source list`"),
        (("inbox", "list", "--hotel", "ROSE", "--source", "web"), 1, "has no source 'web'"),
        (("inbox", "reprocess", "--hotel", "ROZE"), 1, "did you mean ROSE?"),
        (("requests", "list", "--after", "x"), 1, "`alpinehub requests list`"),
        (("hotel", "add", "ROSE", "--name", "Rosé"), 1, "`alpinehub hotel set ROSE`"),
        (("hotel", "add", "R2", "--name", "R", "--time-zone", "x"), 1, "like Europe/Rome"),
        (("inbox", "show", str(2**63 - 1)), 1, "there is no submission"),
        (("inbox", "show", str(2**63)), 2, "is not from 0 to 92233720368"),
        (("inbox", "reprocess", "1", str(2**63)), 2, "is not from 0 to 92233720368"),
        (("inbox", "list", "--state", "all", "--after", "-1"), 2, "is not from 0 to 92233720368"),
        (("customer", "show", "--id", str(2**63)), 2, "is not from 0 to 92233720368"),
    ],
)
async def test_command_says_what_to_do_when_it_fails(
    tmp_path: Path, run: Run, words: tuple[str, ...], code: int, said: str
) -> None:
    async with open_hub(tmp_path, seed=False) as hub:
        await add_hotel(hub.ctx.store, NewHotel(code="ROSE", name="Rosé"))
        assert said in (await run(*words, code=code)).err


async def test_debug_shows_where_a_command_failed(tmp_path: Path, run: Run) -> None:
    async with open_hub(tmp_path, seed=False):
        await run("hotel", "disable", "ROZE", code=1)
        assert "Traceback" in (await run("hotel", "disable", "ROZE", "--debug", code=1)).err


async def test_command_says_so_when_its_output_cannot_be_written(tmp_path: Path) -> None:
    async with open_hub(tmp_path):
        config = configure(tmp_path)
        argv = [sys.executable, "-c", "from alpinehub.cli import main; main()", "hotel", "list"]
        environment = {"PYTHONPATH": ":".join(sys.path), "CORDATA_CONFIG": str(config)}
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                argv, env=environment, stdout=full, stderr=subprocess.PIPE, text=True
            )
    assert done.returncode == 1
    assert "No space left" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.usefixtures("each_store")
async def test_command_tells_and_erases_a_person(tmp_path: Path, run: Run) -> None:
    async with open_hub(tmp_path) as hub:
        await hub.post(BOOKING)
        await hub.post({**BOOKING, "external_id": "n-2", "email": "else@example.com"})

        async def command(*words: str, code: int = 0) -> Done:
            return await run("customer", *words, code=code)

        eva, here = ("--email", "Eva@example.com"), ("--hotel", "DEMO")
        for text in ("eva@example.com", "Muster"):
            found = (await command("find", text, "--json")).json["customers"]
            assert found[0]["email"] in ("eva@example.com", "else@example.com")
        found = (await command("find", "+39 333 1234567", "--json")).json["customers"]
        assert len(found) == 2
        refused = await command("find", "Muster", code=2)
        assert "terminal" in refused.err and "eva@" not in refused.out
        shown = (await command("show", *eva)).out
        assert "eva@example.com" in shown and "Muster" in shown
        assert (await command("show", *eva, "--json")).json["customers"][0]["requests"] == 1
        file = tmp_path / "eva.json"
        await command("export", *eva, *here, "--output", str(file))
        assert file.stat().st_mode & 0o777 == 0o600
        [document] = json.loads(file.read_text())["customers"]
        assert document["requests"][0]["versions"][0]["data"]["message"] == BOOKING["message"]
        printed = (await command("export", *eva, *here)).json
        assert printed["customers"][0]["requests"] == document["requests"]
        there = await command("export", *eva, *here, "--output", str(file), code=1)
        assert f"{file}: File exists" in there.err
        nowhere = str(tmp_path / "nowhere" / "eva.json")
        lost = await command("export", *eva, *here, "--output", nowhere, code=1)
        assert "No such file" in lost.err and "looks like a bug" not in lost.err
        again = str(tmp_path / "nobody.json")
        await command("export", "--email", "nobody@example.com", *here, "--output", again, code=1)
        assert not Path(again).exists()

        tried = (await command("erase", *eva, *here, "--dry-run", "--json")).json
        nothing_else = {"submissions": 0, "submission_list": [], "versions": 0, "mails": 0}
        assert tried == {
            **{"hotels": ["DEMO"], "customers": 1, "requests": 1, "waiting": 1},
            **nothing_else,
        }
        waits = await command("erase", *eva, *here, "--yes", code=1)
        assert "wait for hotel software" in waits.err and "--force" in waits.err
        reason = ("--reason", "a letter")
        done = await command("erase", *eva, *here, "--yes", "--force", *reason, "--json")
        assert done.json["requests"] == 1
        gone = await command("erase", *eva, *here, "--yes", code=1)
        assert "no such customer" in gone.err
        await command("show", "--email", "a@b.it", "--id", "1", code=2)
        [left] = await hub.rows("SELECT email FROM customer")
        assert left["email"] == "else@example.com"


async def test_submission_of_any_text_is_shown_and_exported_as_json(
    tmp_path: Path, run: Run
) -> None:
    """An emoji cut in half; and what only an attacker writes: bodies nested deeply, and numbers
    that JSON does not have.
    """
    eva, half = "eva@example.com", "cut \ud83d"
    async with open_lenient(tmp_path) as hub:
        await post_wix(hub, wix(field__long_answer_3524=half))
        for depth in (500, 50_000):
            await post_form(hub, body=b"[" * depth + b'"eva@example.com"' + b"]" * depth)
        for number in (b"1e999", b"NaN"):
            await post_form(hub, body=b'{"email": "eva@example.com", "x": %b}' % number)
        await hub.handle_events()

        async def command(*words: str) -> Done:
            done = await run(*words)
            assert "Infinity" not in done.out
            return done

        for inbox_id in range(1, 6):
            shown = await command("inbox", "show", str(inbox_id), "--body", "--json")
            values = [field["value"] for field in shown.json["fields"]]
            assert inbox_id != 1 or half in values
        export = ("customer", "export", "--email", eva, "--hotel", "DEMO")
        printed = (await command(*export)).json
        await command(*export, "--output", str(tmp_path / "eva.json"))
        written = json.loads((tmp_path / "eva.json").read_text())
        assert printed == written and len(written["elsewhere"]["inbox"]) == 4
        [request] = written["customers"][0]["requests"]
        assert request["inbox"][0]["body"]["data"]["field:long_answer_3524"] == half


@pytest.mark.usefixtures("each_store")
async def test_command_acts_on_a_person_at_the_hotels_it_names(tmp_path: Path, run: Run) -> None:
    """Each hotel is a controller of its own: nobody else's data goes with a person's."""
    async with open_hub(tmp_path) as hub:
        await add_hotel(hub.ctx.store, NewHotel(code="ROSE", name="Rosé"))
        await add_source(hub.ctx, "ROSE", "generic", "web", "rose-secret")
        await hub.post(BOOKING)
        sent: dict[str, str | None] = {"x-webhook-secret": "rose-secret"}
        assert (await hub.post({**BOOKING, "hotel_code": "ROSE"}, headers=sent)).status == 200

        async def command(*words: str, code: int = 0, given: str = "") -> Done:
            return await run("customer", *words, code=code, given=given)

        async def known() -> list[str]:
            rows = await hub.rows(
                "SELECT h.code FROM customer c JOIN hotel h ON h.id = c.hotel_id ORDER BY h.code"
            )
            return [row["code"] for row in rows]

        for words in (
            ("export", "--email", "eva@example.com"),
            ("erase", "--phone", "+39 333 1234567", "--yes", "--force"),
        ):
            refused = await command(*words, code=2)
            assert "--hotel" in refused.err and "--all-hotels" in refused.err
            await command(*words, "--hotel", "ROSE", "--all-hotels", code=2)
        eva = ("--email", "eva@example.com")
        assert await known() == ["DEMO", "ROSE"]
        for where, hotels in ((("--hotel", "ROSE"), "ROSE"), (("--all-hotels",), "DEMO, ROSE")):
            assert f"of {hotels}" in (await command("erase", *eva, *where, "--dry-run")).out
            tried = await command("erase", *eva, *where, "--dry-run", "--json")
            assert tried.json["hotels"] == hotels.split(", ")
            people = (await command("export", *eva, *where)).json["customers"]
            assert [one["customer"]["hotel"] for one in people] == hotels.split(", ")
        asked = await command("erase", *eva, "--all-hotels", "--force", code=1, given="n\n")
        assert "of DEMO, ROSE" in asked.err and await known() == ["DEMO", "ROSE"]
        await command("erase", *eva, "--hotel", "ROSE", "--yes", "--force")
        assert await known() == ["DEMO"]
        # A number of a customer is of one hotel anyway.
        [row] = await hub.rows("SELECT id FROM customer")
        await command("erase", "--id", str(row["id"]), "--yes", "--force")
        assert await known() == []


async def test_config_check_says_that_secrets_do_not_open_under_another_master_key(
    tmp_path: Path, run: Run
) -> None:
    config = tmp_path / "cordata.toml"

    def check() -> subprocess.CompletedProcess[str]:
        words = ["-m", "cordata", "config", "check", "--config", str(config)]
        words += ["--app", "alpinehub.app:app"]
        environment = {"PYTHONPATH": ":".join(sys.path)}
        return subprocess.run(
            [sys.executable, *words], env=environment, capture_output=True, text=True
        )

    async with open_hub(tmp_path):
        pass
    good = check()
    assert (good.returncode, good.stderr) == (0, "")
    (tmp_path / "credentials/master-key").write_text("ab" * 32)
    other = check()
    assert other.returncode == 0  # the file is right: a reload must not fail for it
    assert "warning: the secrets of 1 source do not open" in other.stderr
    assert "DEMO/website" in other.stderr and "alpinehub source rotate" in other.stderr


async def test_config_check_names_push_passwords_and_time_zones_that_cannot_be_used(
    tmp_path: Path, run: Run
) -> None:
    async with open_hub(tmp_path, seed=False):
        pass
    for words in (
        ("hotel", "add", "ROSE", "--name", "Rosé"),
        ("account", "add", "pms", "--hotel", "ROSE"),
    ):
        await run(*words)
    target = ("--login", "hub", "--url", "https://pms.example/")
    await run("account", "push", "set", "pms", *target, given="a password\n")

    def warnings() -> list[str]:
        words = ("config", "check", "--app", "alpinehub.app:app")
        environment = {
            "PYTHONPATH": ":".join(sys.path),
            "CORDATA_CONFIG": str(tmp_path / "cordata.toml"),
        }
        done = fork_server.run("cordata", words, given="", environment=environment)
        assert done.returncode == 0
        return done.stderr.splitlines()

    assert warnings() == []
    (tmp_path / "credentials/master-key").write_text("ab" * 32)
    with sqlite3.connect(tmp_path / "cordata.db") as connection:
        connection.execute("UPDATE hotel SET time_zone = 'Mars/Olympus'")
    connection.close()
    password, zone = warnings()
    assert "push passwords of these accounts do not open" in password and ": pms;" in password
    assert "does not know the time zone of ROSE; apt install tzdata" in zone
