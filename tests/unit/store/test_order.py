"""The order of the writes of many units."""

from __future__ import annotations

from collections.abc import Sequence

from cordata.store.postgres.merge import read_statement
from cordata.store.postgres.order import Orders, crossing
from cordata.store.postgres.share import Share
from cordata.store.postgres.statement import Statement
from cordata.store.queries import Query

SQL = {
    "add_a": "INSERT INTO a (id, v) VALUES (:id, :v)",
    "add_b": "INSERT INTO b (id, v) VALUES (:id, :v)",
    "make_a": "INSERT INTO a (v) VALUES (:v)",
    "offer_a": "INSERT INTO a (id, v) VALUES (:id, :v) ON CONFLICT DO NOTHING",
    "count_a": "INSERT INTO a (id, v) VALUES (:id, :v) ON CONFLICT (id) DO UPDATE SET v = 1",
    "change_a": "UPDATE a SET v = :v WHERE id = :id",
    "touch_a": "UPDATE a SET at = :at WHERE id = :id AND v = 1",
    "change_a_by_v": "UPDATE a SET w = 1 WHERE v = :v",
    "change_b": "UPDATE b SET v = :v WHERE id = :id",
    "copy_b_to_c": "INSERT INTO c (id) SELECT id FROM b WHERE v = :v",
    "copy_z_to_c": "INSERT INTO c (id) SELECT id FROM z WHERE v = :v",
    "drop_a": "DELETE FROM a WHERE id = :id",
    "lock_a": "SELECT v FROM a WHERE id = :id FOR UPDATE",
}
QUERIES = {name: Query(name, sql, "here", "postgres") for name, sql in SQL.items()}
KNOWN: dict[Query, Statement] = {q: read_statement(q.sql, q.width) for q in QUERIES.values()}

Unit = Sequence[tuple[str, object]]


def units(*calls: Unit) -> list[list[Share]]:
    found = []
    for u, unit in enumerate(calls):
        shares = []
        for name, key in unit:
            query = QUERIES[name]
            args = query.bind(
                {p: key if p in ("id", "v") else 0 for p in query.params} | {"id": key}
            )
            shares.append(Share(u, query, args, ""))
        found.append(shares)
    return found


def arranged(*calls: Unit, fixed: int = 0) -> list[list[tuple[int, str]]]:
    group = units(*calls)
    runs, _ = Orders(KNOWN).of(group).arrange(group, fixed)
    return [[(share.unit, share.query.name) for share in run] for run in runs]


def test_inserts_of_one_kind_go_together_in_the_order_of_the_units() -> None:
    assert arranged([("add_a", 2), ("add_b", 2)], [("add_a", 1), ("add_b", 1)]) == [
        [(0, "add_a"), (1, "add_a")],
        [(0, "add_b"), (1, "add_b")],
    ]


def test_order_within_each_unit_is_kept() -> None:
    runs = arranged([("add_b", 1)], [("add_b", 2), ("add_a", 2)], [("add_a", 3)])
    assert [run[0][1] for run in runs] == ["add_b", "add_a"]


def test_units_go_one_by_one_when_their_own_orders_disagree() -> None:
    assert arranged([("add_a", 1), ("add_b", 1)], [("add_b", 2), ("add_a", 2)]) == [
        [(0, "add_a")],
        [(0, "add_b")],
        [(1, "add_b")],
        [(1, "add_a")],
    ]


def test_changes_are_sorted_by_their_rows_and_then_by_unit() -> None:
    got = arranged([("change_a", "c"), ("touch_a", "a")], [("change_a", "b")], [("touch_a", "a")])
    assert got == [[(0, "touch_a")], [(2, "touch_a")], [(1, "change_a")], [(0, "change_a")]]


def test_every_process_changes_the_tables_in_one_order() -> None:
    one = arranged([("change_b", 1)], [("change_a", 1)])
    other = arranged([("change_a", 1)], [("change_b", 1)])
    assert [run[0][1] for run in one] == [run[0][1] for run in other] == ["change_a", "change_b"]


def test_units_go_one_by_one_when_one_changes_what_another_adds() -> None:
    added, changed = [("add_a", 1), ("add_b", 1)], [("add_b", 2), ("change_a", 1)]
    assert [run[0][0] for run in arranged(added, changed)] == [0, 0, 1, 1]
    apart = arranged(added, [("change_a", 2)])
    assert [run[0][1] for run in apart] in (
        ["add_a", "add_b", "change_a"],
        ["add_a", "change_a", "add_b"],
        ["change_a", "add_a", "add_b"],
    )


def test_unit_may_change_what_it_added_itself() -> None:
    runs = arranged([("add_a", 1), ("change_a", 1)], [("add_a", 2), ("change_a", 2)])
    assert runs == [[(0, "add_a"), (1, "add_a")], [(0, "change_a")], [(1, "change_a")]]


def is_by_step(*calls: Unit) -> bool:
    return Orders(KNOWN).of(units(*calls)).by_step


def test_units_go_one_by_one_when_it_is_not_sure_that_rows_are_different() -> None:
    assert is_by_step([("offer_a", 1)], [("offer_a", 1)])
    assert not is_by_step([("offer_a", 1)], [("add_a", 2)])
    assert not is_by_step([("offer_a", 1)], [("change_a", 1)])
    assert is_by_step([("count_a", 1)], [("change_a", 1)])
    assert not is_by_step([("change_a", 1)], [("change_a_by_v", 1)])
    assert not is_by_step([("make_a", 1)], [("change_a", 1)])
    assert not is_by_step([("drop_a", 1)], [("add_b", 1)])


def test_units_go_one_by_one_when_one_sees_what_another_writes() -> None:
    assert not is_by_step([("copy_b_to_c", 1)], [("add_b", 1)])
    assert is_by_step([("copy_z_to_c", 1)], [("add_b", 1)])


def test_units_that_go_one_by_one_are_sorted_by_their_first_row() -> None:
    three = [("drop_a", "c")], [("drop_a", "a")], [("drop_a", "b")]
    assert [run[0][0] for run in arranged(*three)] == [1, 2, 0]
    assert [run[0][0] for run in arranged(*three, fixed=1)] == [0, 1, 2]


def test_statement_is_banned_when_it_needs_a_transaction_of_its_own() -> None:
    group = units([("add_a", 1)], [("lock_a", 1)])
    order = Orders(KNOWN).of(group)
    assert [order.bans(shares) for shares in group] == [False, True]


def crossed(before: Sequence[Unit], after: Sequence[Unit], ranks: list[int]) -> set[int]:
    orders = Orders(KNOWN)
    early, late = units(*before), units(*after)
    return crossing(orders.of(early), early, list(range(len(early))), orders.of(late), late, ranks)


def test_unit_crosses_when_it_writes_what_a_later_one_wrote_before() -> None:
    first = [[("add_b", 1)], [("change_a", 1)]]
    assert crossed(first, [[("change_a", 1)]], [0]) == {0}
    assert crossed(first, [[("change_a", 1)]], [1]) == set()
    assert crossed(first, [[("change_a", 1)]], [-1]) == set()
    assert crossed(first, [[("add_a", 1)]], [0]) == {0}
    assert crossed(first, [[("change_b", 1)]], [0]) == set()
    assert crossed([[("add_a", 1)], [("add_a", 2)]], [[("add_a", 3)]], [0]) == set()
    assert crossed([[("add_a", 1)], [("copy_b_to_c", 1)]], [[("add_b", 3)]], [0]) == {0}


def test_an_order_serves_all_units_that_differ_in_repetitions_only() -> None:
    orders = Orders(KNOWN)
    one, other = (
        orders.of(units([("add_b", 0), *[("add_a", n) for n in range(count)]]))
        for count in (30, 50)
    )
    assert one is other
