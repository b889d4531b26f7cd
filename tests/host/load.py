"""Load on a host, from inside it: `with Load(host, path="/api/health") as load: ...`."""

from __future__ import annotations

import json
import subprocess
from types import TracebackType
from typing import Any

from tests.host.machine import Host, HostError
from tests.host.network import Network

BOOKING = json.dumps(
    {
        "hotel_code": "DEMO",
        "status": "request",
        "external_id": "load-{n}",
        "arrival": "2027-02-01",
        "departure": "2027-02-08",
        "adults": 2,
        "first_name": "Eva",
        "last_name": "Muster",
        "email": "eva{n}@example.com",
    }
)


class Load:
    """Requests that keep coming while the block runs; what became of them is there after it."""

    def __init__(self, host: Host | Network, **settings: Any) -> None:
        """Sent from inside a host, or from outside of all of them (then with `address`).

        `settings` are those of load_client.Settings.
        """
        self.host = host
        self.settings = settings
        self.counts: dict[str, int] = {}
        self.result: dict[str, Any] = {}
        self._client: subprocess.Popen[str] | None = None

    def start(self) -> Load:
        """Returns after the first answer."""
        command = self.host.python("load_client.py", json.dumps(self.settings))
        self._client = self.host.popen(*command)
        assert self._client.stdout
        if self._client.stdout.readline() != "started\n":
            raise HostError(f"no request was answered: {self._client.communicate()[1]}")
        return self

    def stop(self) -> dict[str, int]:
        """No further request; waits for those under way. Returns the counts."""
        assert self._client
        return self._finish(self._client.communicate(timeout=60))

    @property
    def running(self) -> bool:
        """Whether requests are still to come: with `count`, not for ever."""
        return self._client is not None and self._client.poll() is None

    def _finish(self, output: tuple[str, str]) -> dict[str, int]:
        if not output[0]:
            raise HostError(f"the load client failed: {output[1]}")
        self.result = json.loads(output[0])
        self.counts = self.result["counts"]
        return self.counts

    @property
    def failed(self) -> dict[str, int]:
        """Every outcome but ok."""
        return {name: count for name, count in self.counts.items() if name != "ok" and count}

    def __enter__(self) -> Load:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client and not self.result:
            self.stop()


def booking_load(host: Host | Network, **settings: Any) -> Load:
    """Bookings for the demo hotel, each with a number of its own."""
    return Load(
        host,
        path="/api/webhook/generic",
        headers={"X-Webhook-Secret": "demo"},
        body=BOOKING,
        **settings,
    )
