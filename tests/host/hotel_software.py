"""Runs inside a host: reads guest requests over AlpineBits and acknowledges all, read by read.

Standard library only. Prints one JSON object: the ids of each read, and of what came after all.
"""

from __future__ import annotations

import base64
import json
import re
import time
import urllib.error
import urllib.request

_URL = "http://127.0.0.1:8080/api/alpinebits"
_OTA = 'xmlns="http://www.opentravel.org/OTA/2003/05"'
_READ = (
    f'<OTA_ReadRQ {_OTA} Version="1.001"><ReadRequests>'
    '<HotelReadRequest HotelCode="DEMO"/></ReadRequests></OTA_ReadRQ>'
)
#: A server that was away is found again within seconds; until then 503 says when to ask again.
_PATIENCE_S = 10.0
_RESERVATION = re.compile(r'<HotelReservation [^>]*><UniqueID Type="14" ID="(\w+)"')


def call(action: str, request: str) -> str:
    """One AlpineBits request as the demo user."""
    parts = {"action": action, "request": request}
    body = "".join(
        f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in parts.items()
    )
    headers = {
        "Authorization": "Basic " + base64.b64encode(b"demo:demo").decode(),
        "Content-Type": "multipart/form-data; boundary=B",
        "X-AlpineBits-ClientProtocolVersion": "2024-10",
    }
    asked = urllib.request.Request(_URL, f"{body}--B--\r\n".encode(), headers)
    give_up = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > give_up:
                raise
            time.sleep(float(error.headers["Retry-After"]))


def read() -> list[str]:
    """The ids of one read."""
    return _RESERVATION.findall(call("OTA_Read:GuestRequests", _READ))


def acknowledge(ids: list[str]) -> None:
    """All of one read at once."""
    rows = "".join(
        f'<HotelReservation><UniqueID Type="14" ID="{unique_id}"/></HotelReservation>'
        for unique_id in ids
    )
    answer = call(
        "OTA_NotifReport:GuestRequests",
        f'<OTA_NotifReportRQ {_OTA} Version="1.000"><Success/><NotifDetails><HotelNotifReport>'
        f"<HotelReservations>{rows}</HotelReservations>"
        "</HotelNotifReport></NotifDetails></OTA_NotifReportRQ>",
    )
    if "<Success/>" not in answer:
        raise SystemExit(answer)


def main() -> None:
    """Read, read again (the same must come), acknowledge; until a read is empty."""
    reads: list[list[str]] = []
    while ids := read():
        if read() != ids:
            raise SystemExit("what is not acknowledged was not delivered again")
        acknowledge(ids)
        reads.append(ids)
    print(json.dumps(reads))


if __name__ == "__main__":
    main()
