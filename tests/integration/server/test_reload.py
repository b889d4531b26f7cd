"""`cordata server --reload`: the code that serves is the one in the files."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from itertools import groupby
from pathlib import Path

from tests.integration.server.running import PATIENCE_S, ROOT, server
from tests.waiting import until

CODE = """
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from cordata import App
from page.words import WORD

app = App("page")


async def say(request):
    return JSONResponse({"word": WORD})


app.mount("", Starlette(routes=[Route("/", say)]))
"""
BROKEN = "WORD = 'two'\nraise LookupError('not today')\n"


def write(path: Path, text: str) -> None:
    """As an editor does: the file is never half there. Its time says that all is saved within one
    second: Python would take bytecode of a text before for that of this one.
    """
    new = path.with_suffix(".new")
    new.write_text(text)
    os.utime(new, (path.stat().st_mtime,) * 2)
    new.replace(path)


def write_application(directory: Path) -> tuple[Path, str]:
    """An application in two files; the one that says a word, and the configuration."""
    package = directory / "page"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "app.py").write_text(CODE)
    word = package / "words.py"
    word.write_text("WORD = 'one'\n")
    config = directory / "cordata.toml"
    config.write_text(
        '[app]\nimport = "page.app:app"\npath = ["."]\n'
        '[paths]\nstate = "data"\nruntime = "data/run"\ncredentials = "data/credentials"\n'
    )
    (directory / "data").mkdir(mode=0o700)
    return word, str(config)


def test_signal_ends_a_server_whose_application_hangs_at_its_import(tmp_path: Path) -> None:
    flag = tmp_path / "importing"
    environment = {"AT_IMPORT": f"sleep:{flag}"}
    app = "tests.integration.server.unshareable:app"
    with server(tmp_path, "--reload", app=app, environment=environment) as running:
        until(flag.exists)
        running.signal(signal.SIGINT)
        assert running.wait() == 0


def test_changed_code_serves_and_no_request_is_refused(tmp_path: Path) -> None:
    word, config = write_application(tmp_path)
    failures: list[Exception] = []
    answers: list[str] = []
    over = threading.Event()
    environment = {"PYTHONDONTWRITEBYTECODE": ""}  # the usual, which `make` has changed
    options = ("--reload", "--config", config)
    with server(None, *options, app=None, environment=environment) as running:
        running.ready()

        def ask() -> None:
            while not over.is_set():
                try:
                    answers.append(running.get("/")["word"])
                except OSError as error:
                    failures.append(error)
                time.sleep(0.01)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            until(lambda: "one" in answers, "the first code")
            write(word, "WORD = 'two'\n")
            until(lambda: answers[-1] == "two", "the changed code")

            # The application cannot be imported: the reason, and the former code goes on.
            write(word, BROKEN)
            running.until_logged("the server goes on with the former code until a file changes")
            assert "LookupError: not today" in running.log
            assert f'File "{word}", line 2' in running.log
            assert "import_module" not in running.log  # only the application's own frames
            count = len(answers)
            until(lambda: len(answers) > count + 5, "more answers")
            assert answers[-1] == "two"

            write(word, "WORD = 'three'\n")
            until(lambda: answers[-1] == "three", "the corrected code")
        finally:
            over.set()
            asking.join()
        assert failures == []
        assert [served for served, _ in groupby(answers)] == ["one", "two", "three"]
        # Data is not code: the server itself writes some.
        (tmp_path / "data/orders.csv").write_text("1\n")
        write(word, "WORD = 'four'\n")
        until(lambda: running.get("/")["word"] == "four", "the last code")
        changes = running.until_logged("changed: ", 4)
        assert all(line.endswith("/page/words.py") for line in changes)
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_server_starts_when_the_application_is_corrected_and_keeps_its_socket_file(
    tmp_path: Path,
) -> None:
    word, config = write_application(tmp_path)
    word.write_text("WORD =\n")
    path = tmp_path / "page.sock"
    options = ("--reload", "--config", config, "--listen", str(path))
    with server(None, *options, app=None) as running:
        running.until_logged("nothing is served until a file changes")
        assert "SyntaxError" in running.log and "words.py" in running.log
        with socket.socket(socket.AF_UNIX) as waiting:  # in the queue of the socket
            waiting.settimeout(PATIENCE_S)
            waiting.connect(str(path))
            waiting.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            write(word, "WORD = 'one'\n")
            assert waiting.recv(4096).startswith(b"HTTP/1.1 200")
        write(word, "WORD = 'two'\n")
        running.until(lambda: len(running.out) == 2, "the second start")
        assert path.is_socket()
        running.signal(signal.SIGINT)
        assert running.wait() == 0
    assert not path.exists()


def test_server_that_ends_is_started_again_at_the_next_change(tmp_path: Path) -> None:
    word, config = write_application(tmp_path)
    with server(None, "--reload", "--config", config, app=None, workers=1) as running:
        running.ready()
        os.kill(running.pid_of("worker@0"), signal.SIGKILL)
        running.until_logged("the server exited with 1; it starts again when a file changes")
        write(word, "WORD = 'two'\n")
        running.until(lambda: len(running.out) == 2, "the second start")
        assert running.get("/") == {"word": "two"}
        running.signal(signal.SIGTERM)
        assert running.wait() == 0


def test_library_that_is_missing_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    _, config = write_application(tmp_path)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "watchfiles.py").write_text("raise ImportError('no such library')\n")
    path = os.pathsep.join(map(str, (hidden, ROOT / "daemon", ROOT)))
    with server(
        None, "--reload", "--config", config, app=None, environment={"PYTHONPATH": path}
    ) as running:
        assert running.wait() == 1
        assert "apt install python3-watchfiles" in running.log


def test_reload_is_refused_in_a_service_of_systemd(tmp_path: Path) -> None:
    _, config = write_application(tmp_path)
    # What systemd sets for the process that it starts.
    prefix = ("sh", "-c", 'SYSTEMD_EXEC_PID=$$ exec "$@"', "sh")
    with server(None, "--reload", "--config", config, app=None, prefix=prefix) as running:
        assert running.wait() == 78
        assert "not for a service of systemd" in running.log
