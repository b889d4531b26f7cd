"""Commands: help, exit codes, one sentence per error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.cli.command import ROOT, cordata, write_config


def test_help_lists_every_command_and_the_exit_codes() -> None:
    result = cordata("--help")
    assert result.returncode == 0
    names = ("server", "new", "worker", "primary", "job", "alert", "outbox", "dlq", "migrate")
    for name in (*names, "events", "subscriptions", "config", "credentials", "call"):
        assert f"  {name} " in result.stdout
    assert "78 the configuration cannot be used" in " ".join(result.stdout.split())


def test_version_is_the_packages() -> None:
    assert cordata("--version").stdout.startswith("cordata 0.")


@pytest.mark.parametrize("arguments", [["nonsense"], ["server", "--workers", "none"], ["job"]])
def test_wrong_usage_is_exit_2_without_traceback(arguments: list[str]) -> None:
    result = cordata(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "Usage: cordata" in result.stderr


@pytest.mark.parametrize(
    ("typed", "meant"), [(["logz"], "logs"), (["dlq", "lst"], "list"), (["zzzzzz"], "")]
)
def test_similar_command_is_suggested(typed: list[str], meant: str) -> None:
    result = cordata(*typed)
    assert result.returncode == 2
    said = [line for line in result.stderr.splitlines() if "id you mean" in line]
    assert len(said) == bool(meant) and all(meant in line for line in said), result


def test_completion_offers_commands() -> None:
    result = cordata(_CORDATA_COMPLETE="bash_complete", COMP_WORDS="cordata con", COMP_CWORD="1")
    assert "plain,config" in result.stdout


def test_config_check_says_ok(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    result = cordata("config", "check", "--config", str(path))
    assert (result.returncode, result.stdout) == (0, f"{path}: ok\n")


def test_config_check_names_every_problem_with_exit_78(tmp_path: Path) -> None:
    path = write_config(tmp_path, "[http]\ndrain = 1\n[shop]\nower = 'x'\n[mail]\nport = 0\n")
    result = cordata("config", "check", CORDATA_CONFIG=str(path))
    assert result.returncode == 78
    assert result.stderr.splitlines() == [
        f"error: {path}: [http] drain: unknown key; the nearest known is drain_s",
        f"error: {path}: [mail] port: must be a whole number from 1 to 65535, not 0",
        f"error: {path}: [shop] ower: unknown key; the nearest known is owner",
        "hint: `cordata config show` prints every known key",
    ]


def test_config_check_finds_missing_sql(tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text(
        "from cordata import App\napp = App('lost')\napp.queries('lost_sql')\n"
    )
    path = tmp_path / "cordata.toml"
    path.write_text('[app]\nimport = "lost:app"\npath = ["."]\n')
    result = cordata("config", "check", "--config", str(path))
    assert result.returncode == 78
    assert "'lost_sql'" in result.stderr


def test_config_show_marks_defaults_and_masks_secrets(tmp_path: Path) -> None:
    path = write_config(tmp_path, "[shop]\napi_token = 'hush'\n[http]\naccess_log = true\n")
    result = cordata("config", "show", "--config", str(path))
    assert result.returncode == 0
    assert "hush" not in result.stdout
    assert "access_log = true\n" in result.stdout
    assert "max_connections = 1000  # default\n" in result.stdout


def test_credentials_init_makes_the_master_key_once(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    first = cordata("credentials", "init", "--config", str(path))
    assert first.returncode == 0
    key = (tmp_path / "credentials/master-key").read_text()
    assert len(key.strip()) == 64
    again = cordata("credentials", "init", "--config", str(path))
    assert again.returncode == 0
    assert "is not changed" in again.stdout
    assert (tmp_path / "credentials/master-key").read_text() == key
    assert cordata("credentials", "list", "--config", str(path)).stdout == "master-key\n"


def test_credentials_list_fails_when_it_cannot_look(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    listed = ("credentials", "list", "--config", str(path))
    assert cordata(*listed).returncode == 0  # no directory, so none
    # As root may look anywhere, a file stands for a directory that this user may not read.
    (tmp_path / "credentials").touch()
    result = cordata(*listed)
    assert result.returncode == 1 and f"error: {tmp_path}/credentials: Not a" in result.stderr


def test_worker_ends_with_78_and_is_never_ready_when_no_socket_was_passed(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    result = cordata("worker", "0", "--config", str(path))
    assert result.returncode == 78
    assert "no listening socket named http was passed" in result.stderr
    assert "is ready" not in result.stderr
    assert "Traceback" not in result.stderr


def test_job_ends_with_78_when_there_is_no_such_job(tmp_path: Path) -> None:
    result = cordata("job", "cuont", "--config", str(write_config(tmp_path)))
    assert result.returncode == 78
    assert "no job 'cuont' (it has: count, fail)" in result.stderr


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.toml")
    assert "Traceback" not in cordata("config", "check", "--config", missing).stderr
    assert "Traceback" in cordata("config", "check", "--debug", "--config", missing).stderr


def test_config_check_looks_at_what_a_start_would(tmp_path: Path) -> None:
    path = write_config(tmp_path, "[store]\nurl = 'mysql:'\n")
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials/master-key").write_text("too short\n")
    result = cordata("config", "check", "--config", str(path))
    assert result.returncode == 78
    assert "[store] url is not the address of a store" in result.stderr
    assert "master-key must be 64 hex digits" in result.stderr
    assert "Traceback" not in result.stderr


def test_config_check_names_a_bad_server_url_and_no_password(tmp_path: Path) -> None:
    path = write_config(tmp_path, "[store]\nurl = 'postgresql://u:secret@h/d'\n")
    result = cordata("config", "check", "--config", str(path))
    assert result.returncode == 78
    assert "[store] url contains a password" in result.stderr
    assert "store-password" in result.stderr and "secret" not in result.stderr


@pytest.mark.parametrize(
    "url, problem, step",
    [
        ("redis://:secret@h", "the password does not belong here", "redis-password"),
        ("redis+sentinel://h", "does not name the service", "redis+sentinel://host:port"),
        ("valkey://h", "is no broker", "redis://host"),
    ],
)
def test_config_check_says_what_to_write_as_the_broker(
    tmp_path: Path, url: str, problem: str, step: str
) -> None:
    path = write_config(tmp_path, f"[broker]\nurl = '{url}'\n")
    result = cordata("config", "check", "--config", str(path))
    assert result.returncode == 78 and "secret" not in result.stderr
    error, hint = result.stderr.splitlines()
    assert problem in error and error.startswith("error: ")
    assert step in hint and hint.startswith("hint: ")


@pytest.mark.parametrize("instance", ["x", "../1", "-1", "1a", ""])
def test_worker_takes_only_a_number(instance: str) -> None:
    assert cordata("worker", "--", instance).returncode == 2


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("config", "show"), ("config", "check"), ("dlq", "--help")])
def test_output_that_cannot_be_written_is_no_bug(
    tmp_path: Path, arguments: tuple[str, ...], unbuffered: str
) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}",
        "PYTHONUNBUFFERED": unbuffered,
        "CORDATA_CONFIG": str(write_config(tmp_path)),
    }
    argv = [sys.executable, "-m", "cordata", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(argv, env=environment, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot write the output: No space left on device\n")
    assert "bug" not in done.stderr and "Traceback" not in done.stderr


def test_config_check_refuses_a_sender_with_which_every_mail_would_fail(tmp_path: Path) -> None:
    text = '[mail]\nsender = "cordata@shop..example"\n[alert]\nto = ["root@shop.example"]\n'
    result = cordata("config", "check", "--config", str(write_config(tmp_path, text)))
    assert result.returncode == 78
    assert "[mail] sender: 'cordata@shop..example': not an e-mail address" in result.stderr
    assert "[alert]" not in result.stderr


#: root may read any file: without these capabilities its permissions apply.
WITHOUT = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")


@pytest.mark.parametrize("closed", ["sql_here/migrations", "sql_here/migrations/0001_all.sql"])
def test_migrations_that_cannot_be_read_are_an_error(tmp_path: Path, closed: str) -> None:
    folder = tmp_path / "sql_here/migrations"
    folder.mkdir(parents=True)
    (folder / "0001_all.sql").write_text("CREATE TABLE shop (id INTEGER PRIMARY KEY);")
    (tmp_path / "shop_here.py").write_text(
        "import cordata\napp = cordata.App('shop')\napp.migrations('sql_here')\n"
    )
    path = write_config(tmp_path, app="shop_here:app")
    (tmp_path / closed).chmod(0)
    prefix = WITHOUT if os.geteuid() == 0 else ()
    for command in ("migrate", "primary"):
        done = subprocess.run(
            [*prefix, sys.executable, "-m", "cordata", command, "--config", str(path)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{tmp_path}"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 78, done
        assert f"migrations of shop: {tmp_path / closed}: Permission denied" in done.stderr
        assert f"the user of the service reads them; `namei -l {tmp_path / closed}`" in done.stderr
