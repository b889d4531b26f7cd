"""Robots at the address of a form, through the workers of a real server."""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlencode

from tests.integration.server.hubs import FORM_SECRETS, Hub, hub

PATH = f"/api/webhook/form/DEMO/{FORM_SECRETS['form']}"
CONNECTIONS, POSTS = 8, 60
BURST, PER_S = 20, 5 / 60
_MORE = '[http]\ntrusted_proxies = ["127.0.0.1"]\n'


def flood(running: Hub, statuses: Counter[int], text: str) -> None:
    """As a robot would: one connection after the other, from one address."""
    body = urlencode({"name": "Eva", "arrival": "2027-02-01", "message": text}).encode()
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Forwarded-For": "203.0.113.7",
    }
    for _ in range(POSTS):
        try:
            statuses[running.post(PATH, body, headers)[0]] += 1
        except (OSError, http.client.HTTPException):
            statuses[0] += 1


def test_workers_share_the_limit_of_an_address(tmp_path: Path) -> None:
    with hub(tmp_path, workers=3, more=_MORE, limits="") as running:
        statuses: list[Counter[int]] = [Counter() for _ in range(CONNECTIONS)]
        began = time.monotonic()
        threads = [
            threading.Thread(target=flood, args=(running, counted, "x" * 100_000))
            for counted in statuses
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refilled = 1 + int((time.monotonic() - began) * PER_S)
        total = sum(statuses, Counter())
        assert BURST <= total[200] <= BURST + refilled, total
        assert total[200] + total[429] + total[0] == CONNECTIONS * POSTS
        assert total[429] > CONNECTIONS * POSTS / 2
        assert running.number("SELECT count(*) FROM inbox") == total[200]
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        guest = {**headers, "X-Forwarded-For": "203.0.113.8"}
        assert running.post(PATH, b"name=Eva", guest)[0] == 200
        # Who is no proxy cannot choose an address: these come from 203.0.113.7, too, which may
        # have one more now and then.
        forged = {**headers, "X-Forwarded-For": "203.0.113.9, 203.0.113.7"}
        assert 429 in [running.post(PATH, b"name=Eva", forged)[0] for _ in range(BURST)]
