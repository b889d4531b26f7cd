"""All stored data of a person as a JSON document."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from alpinehub.customers.hashing import PLATFORMS, hashes
from alpinehub.customers.search import Customer
from alpinehub.customers.traces import Traces
from alpinehub.sql import encode_list
from cordata import Row, Store, Tx

Document = dict[str, Any]


async def export(store: Store, customers: Sequence[Customer], traces: Traces) -> Document:
    """A document of the customers, and of all else that names the person (erasure.find_all)."""

    async def unit(tx: Tx) -> Document:
        old = encode_list(traces.versions)
        submissions = encode_list(one.id for one in traces.submissions)
        return {
            "customers": [await _export(tx, customer) for customer in customers],
            "elsewhere": {
                "inbox": await _rows(tx, "customer_inbox_at", submissions),
                "versions": await _rows(tx, "customer_versions_at", old),
                "mails": len(traces.mails),
            },
        }

    return await store.read(unit)


async def _export(tx: Tx, customer: Customer) -> Document:
    requests = await tx.fetch_all("customer_requests", ids=encode_list([customer["id"]]))
    mine = encode_list(row["id"] for row in requests)
    versions = _by_request(await tx.fetch_all("customer_versions", ids=mine))
    deliveries = _by_request(await tx.fetch_all("customer_deliveries", ids=mine))
    history = _by_request(await tx.fetch_all("customer_events", ids=mine))
    inbox = _by_request(await tx.fetch_all("customer_inbox", ids=mine))
    return {
        "customer": _plain(customer, leave=("hotel_id", "region", "phone_due")),
        "hashes": hash_customer(customer),
        "requests": [
            {
                **_plain(row),
                "versions": versions[row["id"]],
                "deliveries": deliveries[row["id"]],
                "history": history[row["id"]],
                "inbox": inbox[row["id"]],
            }
            for row in requests
        ],
    }


async def _rows(tx: Tx, statement: str, ids: str) -> list[Document]:
    return [_plain(row) for row in await tx.fetch_all(statement, ids=ids)]


def _by_request(rows: Iterable[Row]) -> Mapping[str, list[Document]]:
    found: defaultdict[str, list[Document]] = defaultdict(list)
    for row in rows:
        found[row["reservation_id"]].append(_plain(row, leave=("reservation_id",)))
    return found


def hash_customer(customer: Customer) -> list[Document]:
    """The hashes of a customer for each platform, as hex; none without consent."""
    if not customer["consent"]:
        return []
    known = {**customer, "phone": customer["phone_e164"]}
    return [
        {
            "platform": platform,
            **{name: made.hex() for name, made in hashes(known, platform).items()},
        }
        for platform in PLATFORMS
    ]


def _plain(row: Mapping[str, Any] | Row, leave: Sequence[str] = ()) -> Document:
    """A row as a JSON object: times in ISO 8601, stored JSON decoded, bytes as text."""
    return {name: _value(name, value) for name, value in dict(row).items() if name not in leave}


def _value(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name.endswith("_at") or name == "at":
        return datetime.fromtimestamp(value // 1_000_000, UTC).isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value).decode("utf-8", "replace")
    if name in ("data", "headers", "detail", "body"):
        try:
            found = json.loads(value)
            json.dumps(found, indent=2, allow_nan=False)  # as the document is written
        except (ValueError, RecursionError):  # no JSON, nested too deeply, or with 1e999 or NaN
            return value
        return found
    return bool(value) if name == "consent" else value
