"""`cordata new`: what it makes runs at once, and its tests pass."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.integration.cli.command import ROOT, cordata
from tests.integration.server.running import server

from cordata.scaffold import NotEmpty, make


def made(directory: Path, name: str = "myapp", template: str = "starlette") -> Path:
    place = directory / name
    result = cordata("new", name, "--dir", str(place), "--template", template)
    assert result.returncode == 0, result
    return place


def run(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT / "daemon"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_application_serves_handles_and_runs_its_job_and_command(tmp_path: Path) -> None:
    """documents/test_first_steps.py types the same for the template with Starlette."""
    place = made(tmp_path, template="fastapi")
    assert (place / "data").stat().st_mode & 0o777 == 0o700
    config = ("--config", str(place / "cordata.toml"))
    with server(None, *config, app=None) as running:
        url = running.ready() + "/orders"
        order = Request(
            url, data=b'{"item": "boots"}', headers={"Content-Type": "application/json"}
        )
        with urlopen(order, timeout=60) as answer:
            assert answer.status == 201
        deadline = time.monotonic() + 60
        while True:
            with urlopen(url, timeout=60) as answer:
                [found] = json.load(answer)
            if found["confirmed"]:
                break
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with urlopen(f"{url}/{found['id']}/label", timeout=60) as answer:
            assert answer.headers["Content-Type"] == "image/svg+xml"
            assert ">boots<" in answer.read().decode()
        item = ("--json", '{"item": "skis"}')
        label = run(place, "-m", "cordata", "call", "label", *item, *config)
        assert ">skis<" in json.loads(label.stdout), label
        command = run(place, "-m", "myapp", "orders")
        assert command.returncode == 0 and "confirmed  boots" in command.stdout, command
        for expected in (1, 0):
            job = run(place, "-m", "cordata", "job", "figures", "--config", "cordata.toml")
            assert job.returncode == 0
            assert job.stderr.count("figures") == 2 * expected, job.stderr  # role and message
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    listed = run(place, "-m", "cordata", "outbox", "list", "--json", *config)
    assert [one["type"] for one in json.loads(listed.stdout)["items"]] == ["order.placed"]
    examined = run(place, "-m", "cordata", "doctor", "--json", *config)
    checks = json.loads(examined.stdout)["checks"]
    assert [one for one in checks if one["check"] == "permissions" and one["state"] != "ok"] == []


@pytest.mark.parametrize(("template", "passed"), [("starlette", 6), ("fastapi", 7)])
def test_its_own_tests_pass(tmp_path: Path, template: str, passed: int) -> None:
    place = made(tmp_path, "bookings2", template)
    done = run(
        place, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{passed} passed" in done.stdout


@pytest.mark.skipif(
    not (shutil.which("ruff", path=os.path.dirname(sys.executable)))
    or importlib.util.find_spec("mypy") is None,
    reason="the linters are not installed",
)
@pytest.mark.parametrize("template", ["starlette", "fastapi"])
def test_its_code_is_clean(tmp_path: Path, template: str) -> None:
    place = made(tmp_path, template=template)
    ruff = Path(sys.executable).with_name("ruff")
    options = ("--line-length", "100", "--isolated")
    rules = ("--select", "E,F,W,I,UP,B,RUF,D1", "--per-file-ignores", "tests/**:D1")
    for check in (("check", *rules), ("format", "--check")):
        done = subprocess.run(
            [ruff, *check, *options, "--no-cache", "."], cwd=place, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
    types = run(place, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "types"), "myapp")
    assert types.returncode == 0, types.stdout


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("My-app", "a letter first"),
        ("1st", "a letter first"),
        ("ab/cd", "a letter first"),
        ("x" * 41, "40 at most"),
        ("class", "keyword of Python"),
        ("store", "the runtime uses"),
        ("json", "another Python module"),
        ("starlette", "another Python module"),
        ("cordata", "another Python module"),
        ("tests", "another Python module"),
    ],
)
def test_name_that_cannot_be_one_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    result = cordata("new", name, "--dir", str(tmp_path / "app"))
    assert result.returncode == 2
    assert reason in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    place = tmp_path / "myapp"
    place.mkdir()
    inode = place.stat().st_ino
    result = cordata("new", "myapp", "--dir", ".", cwd=place)  # empty is as good as none
    assert result.returncode == 0 and place.stat().st_ino == inode, result
    assert (place / "data" / ".gitignore").exists()
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    again = cordata("new", "myapp", "--dir", str(place))
    assert again.returncode == 1 and "exists and is not empty" in again.stderr
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
    for name in ("file", "link"):
        (tmp_path / "file").touch()
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(tmp_path / "nowhere")
        with pytest.raises(NotEmpty):
            make("myapp", tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "myapp"]


def test_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = cordata("new", "myapp", "--dir", str(tmp_path / "file" / "myapp"))
    assert result.returncode == 1
    assert result.stderr.startswith("Error: ") and "file: File exists" in result.stderr
