"""`cordata doctor` and `cordata report-bug` on real faults; the other checks still answer."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult
from tests.integration.cli.command import ROOT, cordata, write_config
from tests.integration.mail.smtp_server import Mailbox, smtp_server
from tests.integration.store.parts import needs_root, small_disk
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

from cordata.config import Config
from cordata.doctor.host import Host, find_listeners

KEY = "5e" * 32
MAIL = '[mail]\nhost = "127.0.0.1"\nport = {}\nsecurity = "{}"\n[alert]\nto = ["ops@example.com"]\n'

Checks = dict[str, list[dict[str, str]]]


def configured(directory: Path, text: str = "") -> Path:
    """A configuration with closed directories and a master key."""
    path = write_config(directory, text)
    (directory / "state").chmod(0o700)
    (directory / "credentials").mkdir(mode=0o700)
    secret(directory, "master-key", KEY)
    return path


def secret(directory: Path, name: str, value: str) -> None:
    path = directory / "credentials" / name
    path.write_text(f"{value}\n")
    path.chmod(0o600)


def examined(path: Path, *more: str) -> tuple[int, Checks]:
    """Exit code of `cordata doctor`, and its findings by check."""
    done = cordata("doctor", "--json", "--config", str(path), *more)
    assert done.stderr == ""
    assert KEY not in done.stdout
    document: dict[str, Any] = json.loads(done.stdout)
    checks: Checks = {}
    for one in document["checks"]:
        checks.setdefault(one["check"], []).append(one)
        assert bool(one["fix"]) or one["state"] in ("ok", "skipped"), one
    assert (document["state"] == "failed") == (done.returncode == 1)
    return done.returncode, checks


def states(checks: Checks, name: str) -> list[str]:
    return [one["state"] for one in checks[name]]


def failures(checks: Checks) -> list[str]:
    return [name for name, found in checks.items() if "failed" in {one["state"] for one in found}]


def migrated(path: Path) -> None:
    done = cordata("migrate", "--config", str(path))
    assert done.returncode == 0, done


def test_nothing_fails_when_the_store_is_current(tmp_path: Path) -> None:
    path = configured(tmp_path)
    migrated(path)
    code, checks = examined(path)
    assert code == 0 and failures(checks) == []
    good = ("configuration", "application", "permissions", "secrets", "store", "wal", "schema")
    for name in (*good, "data", "broker", "zones"):
        assert set(states(checks, name)) == {"ok"}, checks[name]
    said = cordata("doctor", "--config", str(path))
    assert said.returncode == 0
    assert "ok       schema         current\n" in said.stdout
    assert '[mail] host = "..." in cordata.toml' in said.stdout


def test_what_is_not_there_yet_is_skipped_when_the_service_never_ran(tmp_path: Path) -> None:
    path = configured(tmp_path)
    (tmp_path / "state").rmdir()
    code, checks = examined(path)
    assert code == 0 and states(checks, "store") == ["skipped"]
    assert not (tmp_path / "state").exists()


def test_next_step_is_named_when_there_is_no_application(tmp_path: Path) -> None:
    path = configured(tmp_path)
    path.write_text(path.read_text().replace('import = "tests.integration.cli.shop:app"', ""))
    code, checks = examined(path)
    assert code == 1 and failures(checks) == ["configuration"]
    assert "there is no application to run" in checks["configuration"][0]["text"]
    assert 'import = "MODULE:APP"' in checks["configuration"][0]["fix"]


def test_every_mistake_is_named_and_the_rest_is_checked_when_the_file_is_wrong(
    tmp_path: Path,
) -> None:
    path = configured(tmp_path, '[http]\nmax_headerz = 1\n[engine]\nbatch = "x"\n')
    migrated_elsewhere = configured_copy(path)
    migrated(migrated_elsewhere)
    code, checks = examined(path)
    assert code == 1 and failures(checks) == ["configuration"]
    text = " ".join(one["text"] for one in checks["configuration"])
    assert "max_headerz: unknown key" in text and "batch: must be" in text
    assert states(checks, "schema") == ["ok"]


def configured_copy(path: Path) -> Path:
    """The same without its last two sections, beside it."""
    good = path.with_name("good.toml")
    good.write_text(path.read_text().partition("[http]")[0])
    return good


def test_store_fails_and_the_rest_is_checked_when_postgresql_is_stopped(tmp_path: Path) -> None:
    with PostgresServer() as server:
        url = server.url()
    code, checks = examined(configured(tmp_path, f'[store]\nurl = "{url}"\n'))
    assert code == 1 and failures(checks) == ["store"]
    for name in ("permissions", "disk", "broker", "zones", "secrets"):
        assert set(states(checks, name)) == {"ok"}, checks[name]


def test_unsafe_settings_and_scarce_connections_are_warnings_on_postgresql(tmp_path: Path) -> None:
    # The last one is the server's default alone: cordata's own sessions wait for the disk.
    settings = {"max_connections": "30", "synchronous_commit": "off"}
    with PostgresServer(settings=settings) as server:
        path = configured(tmp_path, f'[store]\nurl = "{server.url()}"\n')
        code, checks = examined(path)
        assert code == 1 and failures(checks) == ["schema"]
        assert "migrations are pending" in checks["schema"][0]["text"]
        assert "restart `cordata server`" in checks["schema"][0]["fix"]
        migrated(path)
        code, checks = examined(path)
    assert code == 0
    named = [one["text"].partition(" ")[0] for one in checks["store"]]
    assert named == ["PostgreSQL", "fsync", "full_page_writes"]
    assert states(checks, "connections") == ["warning"]
    assert "[store] pool_size = 3" in checks["connections"][0]["fix"]
    assert states(checks, "schema") == ["ok"]


def test_wrong_password_is_told_and_not_shown_when_postgresql_refuses(tmp_path: Path) -> None:
    with PostgresServer(password="right") as server:
        url = server.url().replace(":right@", "@")
        path = configured(tmp_path, f'[store]\nurl = "{url}"\n')
        secret(tmp_path, "store-password", "hunter two2")
        code, checks = examined(path)
    assert code == 1 and failures(checks) == ["store"]
    assert "password authentication failed" in checks["store"][0]["text"]
    assert "credential store-password" in checks["store"][0]["fix"]
    assert "hunter" not in json.dumps(checks)


def test_redis_is_a_warning_without_append_only_file_and_failed_when_it_is_stopped(
    tmp_path: Path,
) -> None:
    with RedisServer(config={"maxmemory-policy": "allkeys-lru"}) as redis:
        path = configured(tmp_path, f'[broker]\nurl = "{redis.url}"\n')
        code, checks = examined(path)
        assert code == 0 and states(checks, "broker") == ["ok", "warning", "warning"]
        fixes = " ".join(one["fix"] for one in checks["broker"])
        assert "maxmemory-policy noeviction" in fixes and "appendonly yes" in fixes
        redis.execute("CONFIG", "SET", "maxmemory-policy", "noeviction")
        redis.execute("CONFIG", "SET", "appendonly", "yes")
        assert states(examined(path)[1], "broker") == ["ok"]
    code, checks = examined(path)
    assert code == 1 and failures(checks) == ["broker"]


def test_mail_fails_when_no_server_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    code, checks = examined(configured(tmp_path, MAIL.format(port, "none")))
    assert code == 1 and failures(checks) == ["mail"]
    assert "[mail] host and port" in checks["mail"][0]["fix"]


async def test_mail_is_spoken_to_and_none_is_sent(tmp_path: Path) -> None:
    async with smtp_server(Mailbox()) as box:
        path = configured(tmp_path, MAIL.format(box.port, "none"))
        code, checks = await asyncio.to_thread(examined, path)
        assert code == 0 and states(checks, "mail") == ["ok"]
        path.write_text(path.read_text().replace('"none"', '"starttls"'))
        code, checks = await asyncio.to_thread(examined, path)
        assert code == 1 and failures(checks) == ["mail"]
        assert '587 "starttls"' in checks["mail"][0]["fix"]
    assert box.got == []


async def test_mail_fails_when_the_login_is_refused(tmp_path: Path) -> None:
    def refuse(*_: object) -> AuthResult:
        return AuthResult(success=False, handled=False)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(Mailbox(), authenticator=refuse, auth_require_tls=False, loop=loop),
        "127.0.0.1",
        0,
    )
    path = configured(tmp_path, MAIL.format(server.sockets[0].getsockname()[1], "none"))
    secret(tmp_path, "smtp-user", "postmaster")
    code, checks = await asyncio.to_thread(examined, path)
    assert code == 0 and states(checks, "secrets") == ["warning"]
    secret(tmp_path, "smtp-password", "hunter two2")
    code, checks = await asyncio.to_thread(examined, path)
    assert code == 1 and failures(checks) == ["mail"]
    assert "smtp-password" in checks["mail"][0]["fix"]
    assert "hunter" not in json.dumps(checks)
    server.close()


def test_permissions_name_each_file_that_is_open_or_of_another(tmp_path: Path) -> None:
    path = configured(tmp_path)
    migrated(path)
    (tmp_path / "credentials/master-key").chmod(0o644)
    (tmp_path / "state/cordata.db").chmod(0o640)
    path.chmod(0o666)
    code, checks = examined(path)
    assert code == 1 and failures(checks) == ["permissions"]
    fixes = {one["fix"] for one in checks["permissions"]}
    assert fixes == {
        f"chmod go= {tmp_path}/credentials/master-key",
        f"chmod go= {tmp_path}/state/cordata.db",
        f"chmod go-w {path}",
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_state_that_its_owner_cannot_write_fails() -> None:
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as name:  # pytest's directories are closed to nobody
        directory = Path(name)
        directory.chmod(0o755)
        path = configured(directory)
        state = directory / "state"
        os.chown(state, nobody.pw_uid, nobody.pw_gid)
        state.chmod(0o500)
        code, checks = examined(path)
        assert code == 1 and failures(checks) == ["permissions"]
        assert f"chmod u+rwX {state}" in {one["fix"] for one in checks["permissions"]}
        assert states(checks, "store") == ["skipped"]
        state.chmod(0o700)
        assert examined(path)[0] == 0


def test_wrong_master_key_names_what_does_not_open(tmp_path: Path) -> None:
    path = configured(tmp_path)
    path.write_text(path.read_text().replace("tests.integration.cli.shop", "alpinehub.app"))

    migrated(path)
    for words in (
        ("hotel", "add", "ALPHA", "--name", "Alpha"),
        ("account", "add", "pms", "--hotel", "ALPHA"),
        ("source", "add", "ALPHA", "website"),
    ):
        hub(path, *words)
    target = ("--url", "https://pms.example.com/", "--login", "hub")
    hub(path, "account", "push", "set", "pms", *target, given="a password\n")
    assert failures(examined(path)[1]) == []

    secret(tmp_path, "master-key", "ab" * 32)
    code, checks = examined(path)
    assert code == 1 and failures(checks) == ["data"]
    texts = " ".join(one["text"] for one in checks["data"])
    assert "ALPHA/website" in texts and "pms" in texts
    assert all("master-key" in one["fix"] for one in checks["data"])


@pytest.mark.parametrize("is_there", [False, True])
def test_hints_about_the_master_key_are_the_same_and_lead_to_one(
    tmp_path: Path, is_there: bool
) -> None:
    path = configured(tmp_path)
    file = tmp_path / "credentials/master-key"
    file.write_text("too short") if is_there else file.unlink()
    _, checks = examined(path)
    found = [one for name in ("configuration", "secrets") for one in checks[name]]
    copy = "if you have a copy of it, put it back; else "
    new = "remove the file, then `cordata credentials init`"
    fix = copy + (new if is_there else "`cordata credentials init`")
    assert [one["fix"] for one in found if one["fix"]] == [fix] * (2 if is_there else 1)
    file.unlink(missing_ok=True)
    assert cordata("credentials", "init", "--config", str(path)).returncode == 0
    assert states(examined(path)[1], "secrets") == ["ok"]


def hub(path: Path, *words: str, given: str | None = None) -> None:
    from tests.servers import fork_server

    done = fork_server.run(
        "alpinehub", [*words, "--config", str(path)], given=given, environment=dict(os.environ)
    )
    assert done.returncode == 0, done


def test_listener_on_a_port_is_found_with_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        [found] = find_listeners(port)
        name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
        assert found.address == f"127.0.0.1:{port}"
        assert found.process == f"{name} (pid {os.getpid()})"
    assert find_listeners(port) == []
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        assert [one.address for one in find_listeners(port)] == [f"[::1]:{port}"]


def test_socket_is_found_when_its_address_is_abstract() -> None:
    name = f"@cordata-test-{os.getpid()}"
    unit = {"Id": "http.socket", "LoadState": "loaded", "Listen": f"{name} (Stream)"}
    target = {"Id": "cordata.target", "LoadState": "loaded", "UnitFileState": "enabled"}

    def about(state: str) -> tuple[str, str]:
        units = [unit | {"ActiveState": state, "Result": "resources"}, target]
        [found] = asyncio.run(Host(config=Config(), files=[], units=units).check_sockets())
        return found.state, found.text

    assert about("active") == ("failed", f"nothing listens on {name} any more")
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(name.replace("@", "\0"))
        taken.listen()
        assert about("active") == ("ok", f"http.socket listens on {name}")
        assert about("failed")[1].endswith(f"listens on {name}, which http.socket needs")


def members(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            Path(one.name).name: content.read().decode()
            for one in archive
            if (content := archive.extractfile(one)) is not None
        }


def test_report_holds_no_secret_and_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    text = '[broker]\nurl = "redis://ann@127.0.0.1:1/0"\n[shop]\napi_token = "sesame open"\n'
    path = configured(tmp_path, text)
    secret(tmp_path, "redis-password", "hunter two2")
    file = tmp_path / "report.tar.gz"
    done = cordata("report-bug", str(file), "--config", str(path))
    assert done.returncode == 0, done
    assert "Look at it before you send it" in done.stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = members(file)
    assert set(found) == {
        *("README.txt", "versions.txt", "configuration.toml", "doctor.json"),
        *("units.txt", "journal.txt", "status.json"),
    }
    assert "hunter" not in str(found) and KEY not in str(found) and "sesame" not in str(found)
    assert 'url = "redis://ann@127.0.0.1:1/0"' in found["configuration.toml"]
    assert json.loads(found["doctor.json"])["state"] == "failed"
    assert json.loads(found["status.json"])["state"] in ("degraded", "down")
    assert "cordata 0." in found["versions.txt"] and "msgspec" in found["versions.txt"]

    again = cordata("report-bug", str(file), "--config", str(path))
    assert again.returncode == 1 and "File exists" in again.stderr
    assert members(file) == found


@needs_root
def test_report_that_finds_the_disk_full_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    path = configured(tmp_path)
    with small_disk(tmp_path / "disk", size="8k") as disk:
        (disk / "filled").write_bytes(bytes(8192))
        file = disk / "report.tar.gz"
        done = cordata("report-bug", str(file), "--config", str(path))
        assert not file.exists()
    assert done.returncode == 1 and "looks like a bug" not in done.stderr, done
    assert f"error: {file}: No space left on device" in done.stderr


def test_report_needs_a_directory_that_is_there(tmp_path: Path) -> None:
    path, gone = configured(tmp_path), tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone}; rmdir {gone}; exec {sys.executable} -m cordata report-bug --config {path}"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "looks like a bug" not in done.stderr, done
    assert ".tar.gz: No such file or directory\nhint: " in done.stderr


def test_report_is_packed_when_the_file_is_wrong(tmp_path: Path) -> None:
    path = configured(tmp_path, "[http]\nmax_headerz = 1\n")
    done = cordata("report-bug", "--json", "--config", str(path), cwd=tmp_path)
    assert done.returncode == 0, done
    found = members(Path(json.loads(done.stdout)["file"]))
    assert (
        "max_headerz" in found["configuration.toml"] and "[engine]" in found["configuration.toml"]
    )


def test_application_that_cannot_be_imported_is_told_with_its_place(tmp_path: Path) -> None:
    path = configured(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    path.write_text(
        path.read_text().replace('"tests.integration.cli.shop:app"', '"broken:app"\npath = ["."]')
    )
    code, checks = examined(path)
    assert code == 1 and failures(checks) == ["configuration"]
    assert "broken.py:1" in checks["configuration"][0]["text"]
    assert "--debug" in checks["configuration"][0]["fix"]
