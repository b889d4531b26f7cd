"""Runs inside a host: hotel software to which guest requests are brought.

`hotel_server.py PORT FILE`. Standard library only. Takes all, and appends the ids of each message
to the file, a JSON line each.
"""

from __future__ import annotations

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_RESERVATION = re.compile(r'<HotelReservation [^>]*><UniqueID Type="14" ID="(\w+)"')
_ANSWER = (
    '<OTA_HotelResNotifRS xmlns="http://www.opentravel.org/OTA/2003/05" Version="1.000"><Success/>'
    "<HotelReservations>{}</HotelReservations></OTA_HotelResNotifRS>"
)


class Taker(BaseHTTPRequestHandler):
    """Answers OTA_HotelResNotif."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        ids = _RESERVATION.findall(body)
        with open(sys.argv[2], "a") as file:
            file.write(json.dumps(ids) + "\n")
        rows = "".join(
            f'<HotelReservation><UniqueID Type="14" ID="{unique_id}"/></HotelReservation>'
            for unique_id in ids
        )
        answer = _ANSWER.format(rows).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/xml; charset=utf-8")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the journal of the host is judged."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Taker).serve_forever()
