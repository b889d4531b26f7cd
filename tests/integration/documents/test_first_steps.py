"""What README.md and docs/ tell a developer to type, typed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.host.documents import CHECKOUT, DOCS, README, blocks, commands, pages
from tests.servers.process import free_port
from tests.servers.reaper import watched
from tests.waiting import until

TIMEOUT_S = 150.0


@contextlib.contextmanager
def ready(
    argv: list[str], log: Path, *, cwd: Path = CHECKOUT, code: int = 0, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """A server that has said `ready URL`; stopped by TERM at the end, it exits with `code`."""
    with log.open("w") as errors:
        process = watched(
            subprocess.Popen(
                argv,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **environment},
            )
        )
        killer = threading.Timer(TIMEOUT_S, process.kill)
        killer.start()
        try:
            assert process.stdout
            lines = iter(process.stdout.readline, "")
            assert any(line.startswith("ready http://") for line in lines), log.read_text()
            yield process
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            assert process.wait() == code, log.read_text()
        finally:
            killer.cancel()
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()


def run_shell(script: str) -> str:
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_first_request_is_received_read_and_acknowledged_when_typed(tmp_path: Path) -> None:
    port = free_port()
    post, read, acknowledge = (
        block.replace("127.0.0.1:8080", f"127.0.0.1:{port}") for block in blocks("sh")
    )
    argv = [sys.executable, "packaging/run.py", str(port), str(tmp_path / "state")]
    with ready(argv, tmp_path / "log", code=1, PYTHONPATH="daemon"):
        reservation_id = json.loads(run_shell(post))["id"]
        first = run_shell(read)
        assert re.findall(r'<UniqueID Type="14" ID="(\w+)"', first) == [reservation_id]
        assert reservation_id in run_shell(read)
        assert "<Success" in run_shell(acknowledge.replace('ID="ID"', f'ID="{reservation_id}"'))
        assert reservation_id not in run_shell(read)
        setting, *typed_there = from_checkout()
        assert setting == "export CORDATA_CONFIG=.run/cordata.toml"
        setting = setting.replace(".run", str(tmp_path / "state"))
        there = [line.replace("127.0.0.1:8080", f"127.0.0.1:{port}") for line in typed_there]
        shown = run_shell("\n".join([install(tmp_path), setting, *there]))
        assert "reservation.received" in shown and "DEMO" in shown
        assert "action_OTA_Read" in shown and "0 guest requests" in shown
        assert "passed, 0 failed, 0 warnings" in shown
        assert "wix: 200" in shown
        assert "demo: acknowledged" in shown and "<OTA_ResRetrieveRS" in shown
        # The exit code of the stop that follows says that a process was killed before.
        log = tmp_path / "log"
        (pid,) = re.findall(r"worker@3 is ready \(pid (\d+)\)", log.read_text())
        os.kill(int(pid), signal.SIGKILL)
        until(lambda: "worker@3 is ready" in log.read_text().partition("SIGKILL")[2], "a new one")


def from_checkout() -> list[str]:
    """What is typed beside a hub that `make run` runs."""
    (text,) = [text for text in blocks("console") if "CORDATA_CONFIG" in text]
    return re.findall(r"^\$ (.*?)(?:\s{2,}.*)?$", text, re.MULTILINE)


def install(directory: Path) -> str:
    """The commands that pip would install, made in a directory; returns the shell's setting."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    for name, entry in project["scripts"].items():
        module, _, function = entry.partition(":")
        code = f"from {module} import {function}; {function}()"
        (directory / name).write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$@\"\n")
        (directory / name).chmod(0o755)
    return f"export PATH='{directory}':\"$PATH\" PYTHONPATH='{CHECKOUT / 'daemon'}'"


def test_pip_of_the_documents_installs_what_the_next_commands_take() -> None:
    (text,) = [text for text in blocks("console") if "pip install '.[" in text]
    (extra,) = re.findall(r"pip install '\.\[(\w+)\]'", text)
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert any(one.startswith("pytest>") for one in project["optional-dependencies"][extra])
    assert {"cordata", "alpinehub"} <= project["scripts"].keys()


def write_application(directory: Path) -> None:
    """The Python files of all pages, as their reader makes them."""
    for text in blocks("python"):
        name = re.match(r"# ([a-z_]+\.py)\n", text)
        assert name is not None
        (directory / name[1]).write_text(text)


def typed(word: str) -> list[str]:
    """The commands for a developer that have a word in them."""
    found = [line for line in commands("$ ") if word in line]
    assert found
    return found


def as_python(command: str) -> list[str]:
    """`cordata ...` by this interpreter."""
    return [sys.executable, "-m", *shlex.split(command)]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_application_of_the_documents_handles_its_event_once_when_run(tmp_path: Path) -> None:
    write_application(tmp_path)
    serve, job, test_mode, reload = typed("bookings:app")
    [book], [mail_list] = typed("/book/7"), typed("mail list --state-dir ./data")
    port = free_port()
    state = tmp_path / "state"
    there = serve.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("./data", str(state))
    path = os.pathsep.join([str(CHECKOUT / "daemon"), str(tmp_path)])
    database = state / "cordata.db"
    with ready(as_python(there), tmp_path / "log", PYTHONPATH=path):
        answer = run_shell(book.replace("127.0.0.1:8000", f"127.0.0.1:{port}"))
        assert len(json.loads(answer)["event"]) == 32
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=60) as asked:
            assert asked.status == 200 and json.load(asked) == {"ready": True}
        until(lambda: mails(database), "a mail")
        done = subprocess.run(
            as_python(job.replace("./data", str(state))),
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and "is made" in done.stderr, done
        listed = subprocess.run(
            as_python(mail_list.replace("./data", str(state))),
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert "pending" in listed.stdout, listed
    assert mails(database) == [("Booked", "7")]
    again = subprocess.run(
        as_python(test_mode.replace("./data", str(state))),
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert again.returncode == 0, again.stderr
    there = reload.replace("127.0.0.1:8000", f"127.0.0.1:{port}").replace("./data", str(state))
    with ready(as_python(there), tmp_path / "log", cwd=tmp_path, PYTHONPATH=path):
        pass


def test_tests_of_the_documents_pass(tmp_path: Path) -> None:
    write_application(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT / 'daemon'}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_new_application_of_the_documents_works_when_typed(tmp_path: Path) -> None:
    make, serve, *rest = (
        command
        for text in blocks("console")
        if "myapp" in text
        for command in re.findall(r"^\$ (.*?)(?:\s{2,}.*)?$", text, re.MULTILINE)
    )
    assert make == "cordata new myapp" and rest[-1] == "pytest"
    for name, module in (("cordata", "-m cordata"), ("pytest", "-m pytest"), ("python", "")):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (tmp_path / name).chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    port = free_port()
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    own = {"PATH": path, "PYTHONPATH": str(CHECKOUT / "daemon")}
    script = f"export PATH='{path}' PYTHONPATH='{own['PYTHONPATH']}'; cd '{place}'\n"
    run_shell(f"{script}{make}")
    argv = [*as_python(serve), "--listen", f"127.0.0.1:{port}"]
    with ready(argv, tmp_path / "log", cwd=place, code=0, **own):
        typed_there = "\n".join(rest).replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        shown = run_shell(script + typed_there)
    assert re.search(r'\{"id":"\w{32}"\}', shown)
    assert "order.placed" in shown and "boots" in shown and "6 passed" in shown
    assert "<text x=" in shown


_POST = (
    "import sys, urllib.request as u;"
    ' print(u.urlopen(u.Request(sys.argv[1], method="POST"), timeout=60).read().decode())'
)


def mails(database: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT subject, text FROM mail").fetchall()


def test_make_targets_of_the_documents_exist_when_listed() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    wanted = [line.split()[1] for line in commands("$ ") if line.startswith("make ")]
    assert wanted and set(wanted) <= set(targets)


def test_application_of_the_front_page_handles_its_event_when_run(tmp_path: Path) -> None:
    write_application(tmp_path)
    (serve,) = typed("hello:app")
    port = free_port()
    there = serve.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    there = there.replace("./data", str(tmp_path / "state"))
    path = os.pathsep.join([str(CHECKOUT / "daemon"), str(tmp_path)])
    log = tmp_path / "log"
    with ready(as_python(there), log, PYTHONPATH=path):
        answer = run_shell(f"{sys.executable} -c {_POST!r} http://127.0.0.1:{port}/hello/eva")
        assert len(json.loads(answer)["event"]) == 32
        until(lambda: "greeted eva" in log.read_text())


def test_links_of_the_documents_lead_somewhere() -> None:
    for page in [*pages(), DOCS / "README.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), (page, target)


def test_index_of_the_documents_names_every_page() -> None:
    assert set(pages()) - {README} == set(DOCS.rglob("*.md")) - {DOCS / "README.md"}


def test_front_page_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 150
