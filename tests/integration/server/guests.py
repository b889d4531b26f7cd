"""Who deals with a hub while its processes die: website forms, hotel software that comes, and
hotel software that is come to. Each goes on until told to stop, and keeps what it was promised.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

from tests.integration.push.peer import taken
from tests.integration.server.hubs import FORM_SECRETS, Hub

#: So many people write all the forms.
PEOPLE = 7
#: What reads of more than 256 KiB are done for, in the pool.
_PADDING = " " * 300_000
_OTA = 'xmlns="http://www.opentravel.org/OTA/2003/05"'
_RESERVATION = re.compile(r'<HotelReservation [^>]*><UniqueID Type="14" ID="(\w+)"')
_JSON = {"Content-Type": "application/json"}


def email_of(number: int) -> str:
    """The address in a submission."""
    return f"guest{number % PEOPLE}@example.com"


def generic(number: int) -> tuple[str, bytes, dict[str, str]]:
    """Path, body and headers of a submission."""
    said = {
        "hotel_code": "DEMO", "status": "request", "external_id": f"g-{number}",
        "arrival": "2127-02-01", "departure": "2127-02-08", "adults": 2,
        "first_name": "Eva", "last_name": "Muster", "email": email_of(number),
        "message": f"g-{number}",
    }  # fmt: skip
    body = json.dumps(said).encode()
    return "/api/webhook/generic", body, {**_JSON, "X-Webhook-Secret": "demo"}


def wix(number: int) -> tuple[str, bytes, dict[str, str]]:
    """As `generic`."""
    said = {
        "formName": "Anfrage", "formId": "f-1", "submissionId": f"w-{number}",
        "submissionTime": "2027-01-02T13:26:07.938Z",
        "field:first_name_abae": "Eva", "field:last_name_12f0": "Muster",
        "field:email_5139": email_of(number), "field:date_picker_a7c8": "2127-02-01",
        "field:date_picker_7e65": "2127-02-08", "field:number_7cf5": "2",
        "field:long_answer_3524": f"w-{number}",
        "submissions": [
            {"label": "Anreisedatum", "value": "01.02.2127"},
            {"label": "Abreisedatum", "value": "08.02.2127"},
        ],
    }  # fmt: skip
    path = f"/api/webhook/wix/DEMO/{FORM_SECRETS['wix']}"
    return path, json.dumps({"data": said}).encode(), _JSON


def google(number: int) -> tuple[str, bytes, dict[str, str]]:
    """As `generic`."""
    answers = {"FULL_NAME": "Eva Muster", "EMAIL": email_of(number)}
    said = {
        "lead_id": f"l-{number}", "api_version": "1.0", "form_id": 123, "campaign_id": 456,
        "google_key": FORM_SECRETS["google"],
        "user_column_data": [
            *({"column_id": key, "string_value": value} for key, value in answers.items()),
            {"column_id": "when", "column_name": "Nachricht", "string_value": f"l-{number}"},
        ],
    }  # fmt: skip
    return "/api/webhook/google", json.dumps(said).encode(), _JSON


def form(number: int) -> tuple[str, bytes, dict[str, str]]:
    """As `generic`."""
    said = {
        "name": "Eva Muster", "email": email_of(number), "arrival": "2127-02-01",
        "departure": "08.02.2127", "adults": "2", "message": f"f-{number}",
    }  # fmt: skip
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return f"/api/webhook/form/DEMO/{FORM_SECRETS['form']}", urlencode(said).encode(), headers


@dataclass
class Guest:
    """A source that sends one submission after the other, each until it is accepted."""

    make: Callable[[int], tuple[str, bytes, dict[str, str]]]
    accepted: int = 0
    failures: int = 0
    refused: list[tuple[int, bytes]] = field(default_factory=list)

    def run(self, hub: Hub, stop: threading.Event) -> None:
        """Until `stop`, and the submission in hand accepted."""
        number = 0
        while not stop.is_set():
            path, body, headers = self.make(number)
            while not self._accepted(hub, path, body, headers):
                self.failures += 1
                time.sleep(0.05)
            number = self.accepted = number + 1
            time.sleep(0.01)

    def _accepted(self, hub: Hub, path: str, body: bytes, headers: dict[str, str]) -> bool:
        try:
            status, told, _ = hub.post(path, body, headers)
        except (OSError, http.client.HTTPException):
            return False
        if status != 200 and status != 503:
            self.refused.append((status, told))
        return status == 200


@dataclass
class Software:
    """Hotel software of one user, that reads and acknowledges."""

    user: str
    password: str
    large: bool = False
    #: What it acknowledged and was told so.
    done: set[str] = field(default_factory=set)
    #: What came again after that.
    again: list[str] = field(default_factory=list)
    refused: list[tuple[int, bytes]] = field(default_factory=list)

    def run(self, hub: Hub, stop: threading.Event) -> None:
        """Until `stop`, and nothing waits."""
        while self.round(hub) or not stop.is_set():
            time.sleep(0.05)

    def round(self, hub: Hub) -> bool:
        """Read once, acknowledge. Returns whether there may be more."""
        before = set(self.done)
        told = self._call(hub, "OTA_Read:GuestRequests", _read())
        ids = _RESERVATION.findall(told or "")
        self.again += [one for one in ids if one in before]
        if not ids:
            return told is None
        padding = _PADDING if self.large else ""
        answer = self._call(hub, "OTA_NotifReport:GuestRequests", _acknowledge(ids, padding))
        if answer is not None and "<Success/>" in answer:
            self.done.update(ids)
        return True

    def _call(self, hub: Hub, action: str, document: str) -> str | None:
        token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        headers = {
            "Authorization": f"Basic {token}",
            "Content-Type": "multipart/form-data; boundary=B",
            "X-AlpineBits-ClientProtocolVersion": "2024-10",
        }
        try:
            status, told, _ = hub.post("/api/alpinebits", multipart(action, document), headers)
        except (OSError, http.client.HTTPException):
            return None
        if status not in (200, 503):
            self.refused.append((status, told))
        return told.decode() if status == 200 else None


def multipart(action: str, document: str) -> bytes:
    """The form of an AlpineBits request, with boundary B."""
    parts = {"action": action, "request": document}
    body = "".join(
        f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in parts.items()
    )
    return f"{body}--B--\r\n".encode()


def _read() -> str:
    inside = '<ReadRequests><HotelReadRequest HotelCode="DEMO"/></ReadRequests>'
    return f'<OTA_ReadRQ {_OTA} Version="1.001">{inside}</OTA_ReadRQ>'


def _acknowledge(ids: list[str], padding: str) -> str:
    rows = "".join(
        f'<HotelReservation><UniqueID Type="14" ID="{one}"/></HotelReservation>' for one in ids
    )
    return (
        f'<OTA_NotifReportRQ {_OTA} Version="1.000"><Success/>{padding}<NotifDetails>'
        f"<HotelNotifReport><HotelReservations>{rows}</HotelReservations></HotelNotifReport>"
        "</NotifDetails></OTA_NotifReportRQ>"
    )


class Told(ThreadingHTTPServer):
    """Hotel software that guest requests are pushed to; it takes all."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        #: How often each came.
        self.came: dict[str, int] = {}
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it takes them."""
        return f"http://127.0.0.1:{self.server_port}/api/alpinebits"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked has died."""


class _Taking(BaseHTTPRequestHandler):
    server: Told

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        ids = re.findall(r'<HotelReservation [^>]*><UniqueID Type="14" ID="(\w+)"', body)
        with self.server.lock:
            for one in ids:
                self.server.came[one] = self.server.came.get(one, 0) + 1
        answer = taken([("14", one) for one in ids], {}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
