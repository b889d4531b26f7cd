"""No statement of the hot paths reads more than what it is about: PostgreSQL, on a long history."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.dialect import database as dialect
from tests.integration.dialect.database import (
    Database,
    buffers,
    connect,
    explain_prepared,
    prepare,
)
from tests.servers.postgres import PostgresServer

HOTELS, PER_HOTEL, WAITING = 20, 2000, 150
ALL = HOTELS * PER_HOTEL
_ID = "lpad(to_hex(n), 32, '0')"


def id_of(number: int) -> str:
    return f"{number:032x}"


#: The hotel with the number 7; the newest WAITING of its reservations wait for its user.
_OF_HOTEL = [id_of(n) for n in range(7, ALL + 1, HOTELS)]
_NEWEST = _OF_HOTEL[-WAITING:]
_PARAMS: dict[str, object] = {
    "accepted": json.dumps([[14, id_] for id_ in _NEWEST[:100]]),
    "after_at": 0,
    "after_id": "",
    "client_id": "pms",
    "created_at": 0,
    "customer_id": 7,
    "email": "guest7@example.com",
    "ends_on": "2027-01-31",
    "external_id": "e-7",
    "form_key": "f",
    "undeliverable_code": "no_stay",
    "undeliverable_text": "why",
    "hotel_id": 7,
    "id": id_of(7),
    "ids": json.dumps(list(range(1, 101))),
    "key": "k-7",
    "limit": 100,
    "latest_at": 0,
    "lost_at": 0,
    "now": 0,
    "customers": json.dumps([[n, "+39shared", None, "IT"] for n in range(1, 201)]),
    "tails": json.dumps([[7, f"{n:06d}"] for n in range(1, 201)]),
    "old": 2**62,
    "after": 0,
    "now_us": 0,
    "phone": "+39shared",
    "phone_tail": "shared",
    "rendered": "2024-10/1",
    "rejected": json.dumps([[id_, "no"] for id_ in _NEWEST[:100]]),
    "reservation_id": _NEWEST[0],
    "scope": "source:7",
    "sent_at": None,
    "sequence": None,
    "changed_at": 0,
    "sent": json.dumps([[id_, 1, 14] for id_ in _NEWEST[:100]]),
    "source_id": 7,
    "taken": json.dumps(list(range(1, 101))),
    "status": "request",
    "still_waiting": 0,
    "today": "2027-01-31",
    "unique_id_type": 14,
    "account_id": 7,
    "version": 1,
}
#: Of each: shared buffers that it may touch at most, with a hundred rows in hand.
_HOT = {
    "idempotency.get": 10,
    "find_reservation": 15,
    "customer_find": 15,
    "customer_find_by_phone": 10,
    "customer_due": 450,
    "customer_looked_at": 8000,  # each row is in four indexes
    "customer_numbers": 900,
    "insert_reservation_of_new_customer": 60,
    "update_reservation": 60,
    "end_waiting": 30,
    "fan_out": 60,
    "inbox_forms": 10,
    "inbox_open": 15,
    "delivery_list_waiting": 2000,
    "delivery_list_since": 2000,
    "delivery_mark_sent": 2100,
    "delivery_add": 2500,
    "delivery_mark_undeliverable": 30,
    "delivery_acknowledge": 3500,
    "delivery_reject": 3500,
    "delivery_sent": 2000,
    "hour_changes": 1500,
    "add_to_hours": 1500,
    "forget_changes": 1500,
    "push_wake": 40,
    "push_waits": 10,
    "directory_revision": 5,
}


@pytest.fixture(scope="module")
def filled(postgres: PostgresServer) -> Iterator[Database]:
    """Many hotels with a user each, a long history that is acknowledged, a little that waits."""
    with postgres.database() as url, connect(url) as database:
        database.execute(_fill().encode())
        database.execute("VACUUM (ANALYZE)")
        yield database


def _fill() -> str:
    waits = f"n > {ALL - WAITING * HOTELS}"
    return f"""
        INSERT INTO hotel (code, name, time_zone, language, region, created_at)
        SELECT 'H' || n, 'H', 'UTC', 'de', 'IT', 0 FROM generate_series(1, {HOTELS}) AS n;
        INSERT INTO account (name, password, created_at, changed_at)
        SELECT 'u' || n, '', 0, 0 FROM generate_series(1, {HOTELS}) AS n;
        INSERT INTO account_hotel SELECT n, n FROM generate_series(1, {HOTELS}) AS n;
        INSERT INTO push_target (account_id, url, login, secret, protocol, gzip)
        SELECT n, '', '', '', '2024-10', 0 FROM generate_series(1, {HOTELS}) AS n;
        INSERT INTO source (hotel_id, kind, name, secret, fingerprint, created_at, changed_at)
        SELECT n, 'generic', 'website', '', '', 0, 0 FROM generate_series(1, {HOTELS}) AS n;
        INSERT INTO customer (hotel_id, email, phone, created_at)
        SELECT 1 + (n - 1) % {HOTELS}, 'guest' || n || '@example.com', '+39shared', n
        FROM generate_series(1, {ALL}) AS n;
        INSERT INTO reservation (id, hotel_id, source_id, external_id, customer_id, version, status,
            created_at, changed_at)
        SELECT {_ID}, 1 + (n - 1) % {HOTELS}, 1 + (n - 1) % {HOTELS}, 'e-' || n, n, 1, 'request',
            n, n
        FROM generate_series(1, {ALL}) AS n;
        INSERT INTO reservation_version (reservation_id, version, content_hash, res_status, data,
            request_id, created_at)
        SELECT {_ID}, 1, '', 'Requested', repeat('x', 300), '', n FROM generate_series(1, {ALL}) AS
        n; INSERT INTO delivery (reservation_id, account_id, version, hotel_id, unique_id_type,
        waiting,
            sent_at, acked_at)
        SELECT {_ID}, 1 + (n - 1) % {HOTELS}, 1, 1 + (n - 1) % {HOTELS}, 14,
            CASE WHEN {waits} THEN 1 ELSE 0 END, n, CASE WHEN {waits} THEN NULL ELSE n END
        FROM generate_series(1, {ALL}) AS n;
        INSERT INTO idempotency (scope, key, body_hash, response, created_at)
        SELECT 'source:7', 'k-' || n, '', '', n FROM generate_series(1, {ALL}) AS n;
        INSERT INTO inbox (source_id, received_at, headers, body, state, error, reservation_id,
            request_id)
        SELECT 1 + (n - 1) % {HOTELS}, n, '{{}}', '',
            CASE WHEN n % 400 = 7 THEN 'review' ELSE 'mapped' END, NULL,
            CASE WHEN n % 400 = 7 THEN NULL ELSE {_ID} END, ''
        FROM generate_series(1, {ALL}) AS n;
        INSERT INTO hour_change (hotel_id, hour_at, kind)
        SELECT 7, 0, 'error' FROM generate_series(1, {ALL}) AS n"""


def explain(database: Database, name: str, mode: str, **changes: object) -> str:
    """EXPLAIN ANALYZE of a statement; what it changed is taken back."""
    return dialect.explain(database, name, _PARAMS | changes, mode)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", sorted(_HOT))
def test_statement_stays_on_its_indexes_when_history_is_long(
    filled: Database, name: str, mode: str
) -> None:
    new: dict[str, dict[str, object]] = {
        "fan_out": {"version": 2},
        "insert_reservation_of_new_customer": {"id": id_of(ALL + 1), "external_id": "new"},
        "delivery_sent": {"ids": json.dumps(_NEWEST[:100])},
    }
    text = explain(filled, name, mode, **new.get(name, {}))
    large = "reservation|reservation_version|delivery|customer|idempotency|hour_change"
    assert not re.search(rf"Seq Scan on ({large})\b", text), text
    assert buffers(text) <= _HOT[name], text


def test_plan_that_was_made_when_all_was_empty_stays_good(postgres: PostgresServer) -> None:
    """On the first day nothing has been analysed, and each connection keeps its plans."""
    names = [name for name, most in _HOT.items() if most <= 100]
    names += ["customer_due", "customer_looked_at", "customer_numbers", "delivery_mark_sent"]
    names += ["delivery_add", "delivery_acknowledge", "delivery_sent", "delivery_reject"]
    names = sorted(set(names) - {"end_waiting", "push_wake"})  # which read all that waits
    with postgres.database() as url, connect(url) as database:
        database.execute("SET enable_seqscan = off")  # as sessions of the store have it
        for name in names:
            prepare(database, name)
            explain_prepared(database, name, _PARAMS, "force_generic_plan")
        database.execute(_fill().encode())
        for name in names:
            unknown: dict[str, object] = {
                "email": "new@example.com",
                "phone": "+391",
                "phone_tail": "+391",
                "external_id": "new",
            }
            if name == "fan_out":
                unknown |= {"version": 2}
            if name == "delivery_sent":
                unknown |= {"ids": json.dumps(_NEWEST[:100])}
            text = explain_prepared(database, name, _PARAMS | unknown, "force_generic_plan")
            assert buffers(text) <= _HOT[name], f"{name}: {text}"


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_waiting_list_costs_what_waits_and_not_what_ever_was(filled: Database, mode: str) -> None:
    text = explain(filled, "delivery_list_waiting", mode, after_id=_NEWEST[-2])
    assert "delivery_waiting" in text
    assert buffers(text) <= 40, text
    with filled.transaction(force_rollback=True):
        filled.execute("UPDATE delivery SET waiting = 1 WHERE hotel_id = 8")  # much waits elsewhere
        text = explain(filled, "delivery_list_waiting", mode, after_id=_NEWEST[-2])
    filled.execute("VACUUM delivery")  # what was taken back would cost the next tests
    assert buffers(text) <= 40, text


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_sweep_of_what_is_pushed_costs_what_waits(filled: Database, mode: str) -> None:
    for changes in ({"account_id": None}, {"account_id": None, "hotel_id": None}):
        text = explain(filled, "push_wake", mode, **changes)
        assert not re.search(r"Seq Scan on delivery\b", text), text
        assert buffers(text) <= 20 * HOTELS, text


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_look_for_stale_software_costs_what_waits(filled: Database, mode: str) -> None:
    filled.execute("VACUUM delivery")  # what other tests took back
    text = explain(filled, "monitoring_contacts", mode)
    assert not re.search(r"Seq Scan on (reservation_version|delivery)\b", text), text
    assert buffers(text) <= 200 * HOTELS, text


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_customer_of_a_shared_number_is_found_at_once(filled: Database, mode: str) -> None:
    for changes in (
        {"email": "nobody@example.com"},
        {"phone": None, "phone_tail": None},
        {"phone_tail": "+390"},
    ):
        text = explain(filled, "customer_find", mode, **changes)
        assert buffers(text) <= 20, text


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_what_an_operator_asks_costs_what_he_sees(filled: Database, mode: str) -> None:
    ids = json.dumps(_NEWEST[:100])
    asked: dict[str, tuple[int, dict[str, Any]]] = {
        "requests_newest": (1000, {"before_id": "g"}),
        "requests_of_hotel": (1000, {"before_at": 2**62, "before_id": "g"}),
        "requests_open": (
            8000,
            {"before_id": "g", "hotel_id": None, "account_id": None, "undeliverable": 1},
        ),
        "report_deliveries": (3000, {"hotel_id": 7, "from_at": ALL - 999, "until_at": ALL + 1}),
        "requests_one": (20, {}),
        "requests_deliveries": (2500, {"ids": ids}),
        "requests_history": (20, {}),
        "requests_resend": (60, {"account_id": None}),
        "requests_cancel": (30, {"account_id": None}),
        "status_find": (2000, {"ids": ids}),
    }
    for name, (most, changes) in asked.items():
        text = explain(filled, name, mode, **changes)
        assert not re.search(r"Seq Scan on (reservation|reservation_version|delivery)\b", text), (
            text
        )
        assert buffers(text) <= most, text


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_review_list_costs_what_waits_and_the_inbox_what_is_shown(
    filled: Database, mode: str
) -> None:
    every = {"hotel": None, "source": None, "since": 0, "after": 2**62, "limit": 50}
    asked: dict[str, tuple[int, dict[str, Any]]] = {
        "inbox_list_review": (600, every),
        "inbox_list": (600, {**every, "state": None, "window": 1000}),
        "inbox_window": (100, {**every, "window": 1000}),
        "inbox_undeliverable": (40, every),
        "inbox_newer": (20, {"id": 1}),
        "inbox_open": (20, {"id": 407}),
        "inbox_lock": (30, {"id": 407}),
        "inbox_settle": (60, {"id": 407, "state": "mapped", "outcome": "new", "error": None}),
    }  # fmt: skip
    for name, (most, changes) in asked.items():
        text = explain(filled, name, mode, **changes)
        assert not re.search(r"Seq Scan on (inbox|delivery|reservation)\b", text), text
        assert buffers(text) <= most, text
