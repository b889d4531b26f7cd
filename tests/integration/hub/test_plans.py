"""No statement of the hot paths reads more than what it is about."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.integration.hub.material import BOOKING, open_hub
from tests.queries import queries_of
from tests.raw import raw

from alpinehub.app import app
from cordata import Tx
from cordata.store.queries import Query

#: Statement and the index it must use.
HOT = (
    ("idempotency.get", "PRIMARY KEY"),
    ("find_reservation", "reservation_external"),
    ("customer_find", "customer_email"),
    ("customer_find", "customer_phone (hotel_id=? AND phone_tail=?)"),
    ("customer_find", "customer_phone (hotel_id=? AND phone_tail=? AND email=?)"),
    ("customer_find_by_phone", "customer_phone"),
    ("customer_due", "customer_phone_due"),
    ("customer_looked_at", "INTEGER PRIMARY KEY"),
    ("customer_numbers", "customer_phone"),
    ("customer_without_email", "customer_phone"),
    ("customer_ids_by_email", "customer_email"),
    ("customer_by_tail", "customer_phone"),
    ("customer_move_requests", "reservation_customer"),
    ("customer_requests_to_erase", "reservation_customer"),
    ("customer_inbox", "inbox_reservation"),
    ("retention_old_requests", "PRIMARY KEY (id>? AND id<?)"),
    ("retention_old_customers", "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
    ("retention_old_inbox", "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
    ("update_reservation", "PRIMARY KEY"),
    ("end_waiting", "PRIMARY KEY"),
    ("fan_out", "account_hotel_hotel"),
    ("delivery_list_waiting", "delivery_waiting"),
    ("delivery_list_since", "reservation_created"),
    ("monitoring_contacts", "delivery_waiting"),
    ("push_wake", "delivery_waiting"),
    ("push_waits", "delivery_waiting"),
    ("report_deliveries", "delivery_sent (hotel_id=? AND sent_at>? AND sent_at<?)"),
    ("report_deliveries", "delivery_acked (hotel_id=? AND acked_at>? AND acked_at<?)"),
    ("requests_open", "delivery_waiting"),
    ("report_received", "reservation_created"),
    ("report_sources", "reservation_created"),
    ("report_repeated", "reservation_customer"),
    ("requests_newest", "PRIMARY KEY"),
    ("requests_of_hotel", "reservation_created"),
    ("requests_deliveries", "PRIMARY KEY"),
    ("requests_history", "reservation_event_reservation"),
    ("history_add_once", "reservation_event_reservation"),
    ("delivery_sent", "PRIMARY KEY"),
    ("requests_inbox", "inbox_reservation"),
    ("requests_cancel", "PRIMARY KEY"),
    ("status_find", "PRIMARY KEY"),
    ("hour_changes", "hour_change"),
    ("inbox_open", "INTEGER PRIMARY KEY"),
    ("inbox_forms", "sqlite_autoindex_form"),
    ("inbox_list", "inbox USING INTEGER PRIMARY KEY"),
    ("inbox_window", "inbox USING INTEGER PRIMARY KEY"),
    ("inbox_list_review", "inbox_review (id<?)"),
    ("inbox_newer", "inbox_reservation"),
    ("add_to_hours", "INTEGER PRIMARY KEY"),
    ("forget_changes", "INTEGER PRIMARY KEY"),
    ("document_get", "PRIMARY KEY"),
    ("inbound_messages", "inbound_message_hotel"),
    ("rateplan_all", "PRIMARY KEY"),
    ("rateplan_overlay", "PRIMARY KEY"),
    ("activity_all", "PRIMARY KEY"),
)


async def test_statement_uses_its_index(tmp_path: Path) -> None:
    queries = queries_of("sqlite", *app.query_packages).by_name
    async with open_hub(tmp_path) as hub:
        await hub.post(BOOKING)
        for name, index in HOT:
            query = queries[name]
            plan = await hub.ctx.store.read(partial(explain, query=query))
            assert any(index in step for step in plan), (name, index, plan)
            scanned = {step.split()[1] for step in plan if step.startswith("SCAN")}
            large = {"reservation", "customer", "delivery", "r", "d", "v"}
            assert not scanned & large, (name, plan)


async def explain(tx: Tx, *, query: Query) -> list[str]:
    """The steps of a statement's plan."""
    explained = f"EXPLAIN QUERY PLAN {query.sql}"
    rows = await raw(tx, explained, query.values(dict.fromkeys(query.params)))
    return [row["detail"] for row in rows]


async def test_waiting_list_is_read_by_the_partial_index_alone(tmp_path: Path) -> None:
    """What waits is in the index delivery_waiting, and nothing else is: its size is what waits."""
    async with open_hub(tmp_path) as hub:
        for number in range(20):
            await hub.post({**BOOKING, "external_id": "n-1", "adults": 1 + number})
        assert await hub.one("SELECT count(*) FROM delivery") == 20
        indexed = "SELECT count(*) FROM delivery INDEXED BY delivery_waiting"
        assert await hub.one(f"{indexed} WHERE waiting = 1 AND account_id = 1") == 1
