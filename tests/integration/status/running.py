"""A real `cordata server` with its status page."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from tests.integration.cli.command import cordata, write_config
from tests.integration.metrics.scrape import PATIENCE_S
from tests.integration.server.running import Server, forked_server
from tests.servers.process import free_port
from tests.waiting import until

APP = "tests.integration.metrics.counted:app"


@dataclass(kw_only=True)
class Page:
    """The page, as a browser or a program sees it."""

    server: Server
    config: Path
    address: str
    token: str
    cookie: str = ""
    #: Of the last answer.
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def ask(
        self, path: str, method: str = "GET", body: str = "", **headers: str
    ) -> tuple[int, str]:
        """Status and text. `headers`: with _ for -."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body.encode(), sent)
        response = connection.getresponse()
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        text = response.read().decode()
        connection.close()
        return response.status, text

    def program(self, path: str, method: str = "GET", **form: str) -> tuple[int, str]:
        """With the token."""
        return self.ask(path, method, urlencode(form), authorization=f"Bearer {self.token}")

    def log_in(self) -> None:
        """As a browser does."""
        status, _ = self.ask("/login", "POST", urlencode({"token": self.token}), origin=self.url)
        assert (status, self.headers["location"]) == (303, "/")
        self.cookie = self.headers["set-cookie"].partition(";")[0]

    def browse(self, path: str) -> tuple[int, str]:
        """With the session."""
        return self.ask(path, cookie=self.cookie)

    def until_shown(self, text: str) -> str:
        """The overview, once it has this text."""
        found = [""]

        def is_shown() -> bool:
            found[0] = self.program("/")[1]
            return text in found[0]

        until(is_shown, what=text)
        return found[0]

    def publish(self, type_: str) -> None:
        """One event, by a request of its own."""
        host = self.server.ready().removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=PATIENCE_S)
        connection.request("POST", f"/publish/{type_}")
        assert connection.getresponse().status == 200
        connection.close()


@contextmanager
def status_page(directory: Path, *, listen: str = "", text: str = "") -> Iterator[Page]:
    """A server with two workers, and its page."""
    address = listen or f"127.0.0.1:{free_port()}"
    config = write_config(directory, f'[status]\nlisten = "{address}"\n{text}', APP)
    done = cordata("credentials", "init", "status-token", "--config", str(config))
    assert done.returncode == 0 and "status-token" in done.stdout
    token = (directory / "credentials" / "status-token").read_text().strip()
    with forked_server(None, "--config", str(config), app=None) as running:
        running.ready()
        yield Page(server=running, config=config, address=address, token=token)
