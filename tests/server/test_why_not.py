"""Why a row is not there: the first operator at which its candidates are dropped, in queries whose wrong operator is known."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final

import pytest

from tests.server.client import ask
from timely.errors import ConfigurationError, SchemaError, ViewError
from timely.server import Limits, Views, ViewServer

SCHEMAS: Final = {
    "orders": "id long, cust long, amount long, day date",
    "customers": "id long, name string, country string",
    "items": "order_id long, part long, n long",
    "parts": "id long, name string, price double",
}

WRONG: Final = {
    "where": "select id, amount from orders where amount >= 0 and {orders}",
    "computed": "select id * 2 as id, amount + 1 as more from (select * from orders where {orders})",
    "join": "select o.id, name from orders o join customers c on o.cust = c.id where {o} and country <> 'x'",
    "partner": "select o.id, c.name from orders o join (select id, name from customers where {customers}) c on o.cust = c.id",
    "left join": "select o.id, c.name from orders o left join customers c on o.cust = c.id where {o}",
    "right join": "select o.id, c.name from customers c right join (select * from orders where {orders}) o on o.cust = c.id",
    "full join": "select o.id, c.name from (select * from orders where {orders}) o full join customers c on o.cust = c.id",
    "cross join": "select o.id, c.id as other from orders o, customers c where {o} and c.id < 4",
    "three tables": "select o.id, p.name from items i join orders o on i.order_id = o.id join parts p on i.part = p.id where {o}",
    "group": "select cust, count(*) as n from orders join customers c on c.id = cust where {customers_c} group by cust",
    "value": "select amount < 99 as b, sum(amount) as total from orders where {orders} group by b",
    "having": "select o.id, count(*) as n from orders o join items i on o.id = i.order_id where {o} group by o.id having n > 0",
    "rollup": "select amount < 99 as b, count(*) as n from orders o where {o} group by rollup (b)",
    "distinct": "select distinct id from orders where {orders}",
    "in": "select id from orders where id in (select order_id from items, orders o where o.id = order_id and {o})",
    "exists": "select id from orders o where exists (select 1 from customers c where c.id = o.cust and {customers_c})",
    "not exists": "select id from orders o where not exists (select 1 from items where order_id = -o.id) and {o}",
    "union": "select id from orders where {orders} union all select id + 1000 from customers",
    "except": "select id from orders where {orders} except select id + 1000 from customers",
    "intersect": "select id from orders intersect select id from orders where {orders}",
    "window": "select id, row_number() over (partition by cust order by amount, id) >= 1 as b from orders where {orders}",
    "limit": "select id from orders where {orders} order by amount, id limit 1000",
    "first": "select distinct on (id) id, amount from orders where {orders} order by id, amount",
    "scalar": "select id, (select max(price) from parts) as most from orders where {orders}",
    "with": "with few as (select * from orders where {orders}) select a.id from few a join few b on a.id = b.id",
    "unnest": "select id, unnest([amount, amount + 1]) as one from orders where {orders}",
    "recursive": "with recursive r(id) as (select id from orders where {orders} union select id + 99 from r where id < 9) from r",
    "view": "select id, name from all_orders where {all_orders}",
    "in a view": "select id from wrong_orders",
}

Row = tuple[Any, ...]


def views_of(seed: int) -> Views:
    chance = random.Random(seed)
    views = Views()
    orders = [(n, n % 7, chance.randrange(50), None) for n in range(1, 31)]
    views.table("orders", SCHEMAS["orders"], orders)
    views.table("customers", SCHEMAS["customers"], [(n, f"c{n}", chance.choice("ab")) for n in range(7)])
    views.table("items", SCHEMAS["items"], [(n, chance.randrange(5), 1) for n in range(1, 31)])
    views.table("parts", SCHEMAS["parts"], [(n, f"p{n}", n / 2) for n in range(5)])
    views.view("all_orders", "select o.id, o.cust, c.name from orders o join customers c on o.cust = c.id")
    return views


def planted(template: str, seed: int) -> tuple[str, str, str]:
    """Return a query, the same with a wrong condition, and that condition."""
    number = random.Random(seed).randrange(1, 7)
    wrong = {
        "orders": f"id % 7 <> {number}",
        "o": f"o.id % 7 <> {number}",
        "customers": f"id <> {number}",
        "customers_c": f"c.id <> {number}",
        "all_orders": f"id % 7 <> {number}",
    }
    (name,) = [name for name in wrong if f"{{{name}}}" in template]
    return template.format(**{name: "true"}), template.format(**wrong), wrong[name]


def check(shape: str, seed: int) -> None:
    views, template = views_of(seed), WRONG[shape]
    view = "v"
    if shape == "in a view":
        view, template = "wrong_orders", "select * from orders where {orders}"
    query, wrong, condition = planted(template, seed)
    views.view("right_one", query)
    views.view(view, wrong)
    names = [column.name for column in views.describe("right_one").columns]
    there = dict(views.read(view).rows)
    missing = random.Random(seed).choice([row for row, _ in views.read("right_one").rows if row not in there])
    values = dict(zip(names, missing))
    if shape == "in a view":
        views.view("v", WRONG[shape])
        values = {"id": values["id"]}
    drops = views.why_not("v", values).drops
    changed = shape in ("value", "rollup")  # the group is there, with another value
    drop = next(each for each in drops if condition in each.reason) if changed else drops[0]
    assert drop.operator == "filter"
    assert condition in drop.reason, drops
    assert drop.view == ("wrong_orders" if shape == "in a view" else "v")
    assert drop.rows
    if changed:
        assert drops[0].operator == "group"


@pytest.mark.parametrize("shape", WRONG)
def test_a_wrong_filter_is_named(shape: str) -> None:
    check(shape, 1)


@pytest.mark.soak
@pytest.mark.parametrize("shape", WRONG)
def test_a_wrong_filter_is_named_over_other_rows(shape: str) -> None:
    for seed in range(2, 9):
        check(shape, seed)


DROPPED: Final = [
    ("select o.id from orders o join customers c on o.cust = c.id + 100", {"id": 3}, "join", "o.cust = c.id + 100", (3, 3)),
    ("select id from orders where id in (select n from items where n > 5)", {"id": 3}, "EXISTS", "n > 5", (3,)),
    ("select id from orders o where exists (select 1 from parts p where p.id = o.id)", {"id": 9}, "EXISTS", "p.id = o.id", (9,)),
    ("select id from orders o where not exists (select 1 from parts p where p.id = o.id)", {"id": 3}, "NOT EX", "p.id", (3,)),
    ("select id from orders where id not in (select id from parts)", {"id": 3}, "NOT EXISTS", "id not in", (3,)),
    ("select cust, count(*) as n from orders group by cust having count(*) > 9", {"cust": 3}, "HAVING", "count(*) > 9", (3, 4)),
    ("select cust, max(id) as most from orders group by cust", {"cust": 3, "most": 3}, "group", "max(id) = 3", (3, 24)),
    ("select id from orders order by id limit 2", {"id": 3}, "LIMIT", "id = 3", (1,)),
    ("select id from orders order by id limit 9 offset 3", {"id": 3}, "LIMIT", "id = 3", (4,)),
    ("select id, rank() over (order by id) as r from orders", {"id": 3, "r": 4}, "window functions", "= 4", (3, None)),
    ("select id from orders qualify row_number() over (order by id) < 3", {"id": 3}, "QUALIFY", "id = 3", (1,)),
    ("select id from orders except select id from parts", {"id": 3}, "EXCEPT", "id = 3", (3,)),
    ("select id from orders intersect select id + 9 from parts", {"id": 3}, "INTERSECT", "id = 3", (3,)),
    ("select id, unnest([id, 7]) as one from orders", {"id": 3, "one": 8}, "unnest", "= 8", (3,)),
    ("select o.id, p.name from orders o left join parts p on o.id = p.id", {"id": 9, "name": "p1"}, "join", "o.id = p.id", (9,)),
    ("select id from orders where id = 100 or id < 0", {"id": 3}, "filter", "id = 100 or id < 0", (3,)),
    ("select name from customers", {"name": "nobody"}, "table customers", "name = 'nobody'", None),
    ("values (1), (2)", {"col0": 3}, "VALUES", "= 3", None),
    ("select id from orders where amount > (select avg(amount) + 99 from orders)", {"id": 3}, "filter", "amount >", (3,)),
    ("with recursive r(n) as (select 1 union select n + 1 from r where n < 3) from r", {"n": 4}, "filter", "n < 3", (3,)),
    (
        "with recursive r(n) as (select 1 union select n + 1 from r where n < 9 and n <> 5) from r",
        {"n": 8},
        "filter",
        "<> 5",
        (5,),
    ),
]


@pytest.mark.parametrize(("query", "values", "operator", "reason", "row"), DROPPED)
def test_the_operator_that_drops_the_last_candidates_is_named(
    query: str, values: dict[str, Any], operator: str, reason: str, row: Row | None
) -> None:
    views = views_of(0)
    views.view("v", query)
    first = views.why_not("v", values).drops[0]
    assert first.operator.startswith(operator), first
    assert reason in first.reason, first
    assert not first.rows if row is None else set(row) <= set(first.rows[0]), first


LONG: Final = """
with sold as (select o.id, o.cust, o.amount, i.part, i.n from orders o join items i on i.order_id = o.id where o.amount >= 0),
named as (select s.*, c.name, c.country from sold s join customers c on c.id = s.cust where c.country in ('a', 'b')),
priced as (select n.*, p.price from named n left join parts p on p.id = n.part where n.id % 7 <> 3),
ranked as (select *, row_number() over (partition by cust order by amount desc, id) as place from priced where price >= 0),
few as (select * from ranked where place <= 100 and exists (select 1 from customers x where x.id = cust)),
totals as (select id, cust, name, sum(n) as n, max(price) as price from few group by id, cust, name having sum(n) > 0)
select distinct t.id, t.name, t.n from totals t join (select id from orders union all select id from orders where false) o
using (id) where t.price < 100 and t.id not in (select -id from parts) order by t.id limit 1000
"""


def test_one_question_finds_the_wrong_filter_of_a_long_query() -> None:
    views = views_of(0)
    views.view("v", LONG)
    first = views.why_not("v", {"id": 10}).drops[0]
    assert (first.operator, first.view) == ("filter", "v")
    assert "n.id % 7 <> 3 at line 4" in first.reason
    assert 10 in first.rows[0]


@pytest.mark.parametrize(
    ("nesting", "operator"),
    [
        ("select id, cust from (select *, row_number() over (partition by cust order by id) as r from ({}) t) where r < 99", "Q"),
        ("select id, cust from ({}) t order by id limit 99", "filter"),
        ("with t as ({}) select a.id, b.cust from t a join t b on a.id = b.id", "filter"),
    ],
)
def test_parts_of_a_query_that_are_read_from_many_sides_are_looked_at_once(nesting: str, operator: str) -> None:
    query = "select id, cust from orders"
    for _ in range(12):
        query = nesting.format(query)
    views = views_of(0)
    views.view("v", f"with nested as ({query}) select id, cust from nested where id <> 3")
    first = views.why_not("v", {"id": 3}).drops[0]
    assert first.operator.startswith(operator)
    assert "id <> 3" in first.reason
    assert views.why("v", row=(4, 4)).inputs["orders"].keys() <= {row for row, _ in views.read("orders").rows}


def test_questions_that_nothing_answers_are_refused() -> None:
    views = Views(Limits(queries=1))
    views.table("t", "n long, word string", [(1, "few")])
    views.view("v", "select word from t")
    for name, values, reason in (
        ("t", {"n": 2}, "asked of a view"),
        ("v", {}, "values of some of its columns word"),
        ("v", {"n": 1}, "values of some of its columns word"),
        ("v", {"word": "few"}, "has such a row"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            views.why_not(name, values)
    with pytest.raises(SchemaError, match="column 'word' is .* give a value of the column's type"):
        views.why_not("v", {"word": 3})
    with views.query("select n from t"), pytest.raises(ViewError, match="1 query runs already"):
        views.why_not("v", {"word": "many"})


def test_rows_whose_window_is_not_closed_are_named() -> None:
    views, query = Views(), "select at // 10 as ten, count(*) as n from t group by ten emit on window close"
    views.run_script(
        f"create table t (at bigint lateness 5); create view v as {query}; create view w as select n + 1 as m from v"
    )
    for at in (3, 12, 17):
        views.commit({"t": {(at,): 1}})
    assert views.read("v").rows == [((0, 1), 1)]
    for name, values in ("v", {"ten": 1}), ("w", {"m": 3}):
        assert str(views.why_not(name, values).drops[0]).startswith(
            "emit on window close in v: the watermark has not passed them\n"
        )
    with pytest.raises(ConfigurationError, match="v has such a row"):
        views.why_not("v", {"ten": 0})


def test_it_is_asked_over_http() -> None:
    views = views_of(0)
    views.view("few", "select o.id, name from orders o join (select * from customers where country > 'z') c on cust = c.id")

    def rows(drops: Iterable[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
        return [(drop["operator"], drop["rows"]) for drop in drops]

    with ViewServer(views) as server:
        reply = ask(server.port, "/views/few/why_not?id=3&name.null=true")
        assert reply.status == 200
        assert reply.content["text"].startswith("no row with id = 3, name = None:")
        reply = ask(server.port, "/views/few/why_not?id=3")
        (operator, lost), (join, left) = rows(reply.content["drops"])
        assert (operator, lost[0]["customers.id"], join) == ("filter", 3, "join")
        assert left == [{"id": 3, "cust": 3, "amount": left[0]["amount"], "day": None}]
        for query, reason in (
            ("?id.gt=3", "no ranges"),
            ("?id=3&id=4", "each column once"),
            ("", "values of some of its columns"),
            ("?town=3", "no column"),
        ):
            reply = ask(server.port, f"/views/few/why_not{query}")
            assert (reply.status, reason in str(reply.content)) == (400, True)
