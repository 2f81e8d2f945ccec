"""Recursive queries: what ``WITH MUTUALLY RECURSIVE`` settles at, beside loops in Python, and what plain recursion takes beside
DuckDB, at every epoch of random insertions and deletions.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

import timely
from tests.differential.beside_duckdb import typed
from tests.differential.sql_epochs import QUERIES, SCHEMAS, stream
from timely import OperatorError, SqlError
from timely import differential as dd

Edges: TypeAlias = list[tuple[int, int, int]]
"""Edges with lengths: from 1 to 6, and 0 to 5."""


def limit(f: Callable[[Any], Any], x: Any) -> Any:
    """Return where ``x = f(x)`` settles, from ``x``."""
    while (after := f(x)) != x:
        x = after
    return x


def distances(edges: Edges) -> Any:
    def nearer(known: dict[int, int]) -> dict[int, int]:
        lengths = [(1, 0), *((dst, known[src] + w) for src, dst, w in edges if src in known)]
        return {node: min(length for other, length in lengths if other == node) for node, _ in lengths}

    return limit(nearer, {}).items()


def same_generation(edges: Edges) -> Any:
    siblings = {(a, b) for a, c, _ in edges for b, d, _ in edges if c == d}
    return limit(
        lambda known: known | siblings | {(a, b) for a, c, _ in edges for b, d, _ in edges if (c, d) in known},
        frozenset[Any](),
    )


def points_to(edges: Edges) -> Any:
    """Take edges of length 0 for ``x = new``, 1 for ``x = y``, 2 for ``x = *y``, others for ``*x = y``."""
    statements = [({0: "new", 1: "copy", 2: "load"}.get(w, "store"), x, y) for x, y, w in edges]

    def step(known: Any) -> Any:
        points, contents = known
        more = {
            pair
            for kind, x, y in statements
            for pair in (
                [(x, y)]
                if kind == "new"
                else [(x, o) for z, o in points if kind == "copy" and z == y]
                + [(x, o) for z, p in points for q, o in contents if kind == "load" and z == y and p == q]
            )
        }
        stored = {(p, o) for kind, x, y in statements for a, p in points for b, o in points if (kind, a, b) == ("store", x, y)}
        return points | more, contents | stored

    return limit(step, (frozenset[Any](), frozenset[Any]()))[0]


def quantities(edges: Edges) -> Any:
    def needed(part: int) -> Counter[int]:
        total = Counter({part: 1})
        for whole, piece, n in edges:
            if whole == part and part < piece:
                total.update({name: n * count for name, count in needed(piece).items()})
        return total

    return [(part, n) for part, n in needed(1).items() if n]


def winning(edges: Edges) -> Any:
    def wins(node: int) -> bool:
        return any(not wins(dst) for src, dst, _ in edges if src == node and src < dst)

    return [(node,) for node in {src for src, _, _ in edges} if wins(node)]


def in_core(edges: Edges) -> Any:
    links = {(src, dst) for src, dst, _ in edges if src != dst} | {(dst, src) for src, dst, _ in edges if src != dst}

    def leave(gone: Any) -> Any:
        degrees = Counter(src for src, dst in links if src not in gone and dst not in gone)
        return gone | {node for node, _ in links if degrees[node] < 2}

    return [(node,) for node in {node for node, _ in links} - limit(leave, frozenset[int]())]


def by_parity(edges: Edges) -> Any:
    targets = defaultdict(set)
    for src, dst, _ in edges:
        targets[src].add(dst)

    def step(known: Any) -> Any:
        even, odd = known
        return {1} | even | {dst for src in odd for dst in targets[src]}, odd | {dst for src in even for dst in targets[src]}

    even, odd = limit(step, (frozenset[int](), frozenset[int]()))
    return [("even", node) for node in even] + [("odd", node) for node in odd]


def growing_reach(edges: Edges) -> Any:
    """Return the nodes from 1 along edges shorter than the number of nodes so far: a loop around a loop."""

    def reach(shorter: int) -> Any:
        near = [(src, dst) for src, dst, w in edges if w < shorter]
        return limit(lambda known: {1} | known | {dst for src, dst in near if src in known}, frozenset[int]())

    return [(node,) for node in limit(lambda nodes: reach(len(nodes) + 1), frozenset[int]())]


def closure(edges: Edges) -> Any:
    pairs = {(src, dst) for src, dst, _ in edges}
    return limit(lambda known: known | {(a, d) for a, b in known for c, d in known if b == c}, frozenset(pairs))


PROGRAMS: dict[str, tuple[Callable[[Edges], Any], str]] = {
    "shortest paths": (
        distances,
        "with mutually recursive near (node int, length int) as (select node, min(length) from (select 1 as node, 0 as length"
        " union all select dst, length + w from near join edges on src = node where w is not null) group by node)"
        " select * from near",
    ),
    "same generation": (
        same_generation,
        "with recursive alike(a, b) as (select x.src, y.src from edges x join edges y using (dst) where x.w + y.w is not null"
        " union select x.src, y.src from edges x join alike on x.dst = a join edges y on y.dst = b where x.w + y.w is not null)"
        " select * from alike",
    ),
    "points-to": (
        points_to,
        "with mutually recursive points (name int, object int) as (select src, dst from edges where w = 0"
        " union select src, object from edges join points on name = dst where w = 1"
        " union select src, c.object from edges join points p on name = dst join contents c on c.place = p.object where w = 2),"
        " contents (place int, object int) as (select distinct p.object, q.object from edges"
        " join points p on p.name = src join points q on q.name = dst where w > 2) select * from points",
    ),
    "bill of materials": (
        quantities,
        "with mutually recursive needed (part int, n int) as (select part, sum(n) from (select 1 as part, 1 as n"
        " union all select dst, n * w from needed join edges on src = part where src < dst and w is not null) group by part)"
        " select * from needed where n > 0",
    ),
    "win-move": (
        winning,
        "with mutually recursive win (node int) as (select distinct src from edges where w is not null and src < dst and not"
        " exists (select 1 from win where node = dst)) select * from win",
    ),
    "two-core": (
        in_core,
        "with mutually recursive link (a int, b int) as (select src, dst from edges where src <> dst and w is not null"
        " union select dst, src from edges where src <> dst and w is not null), gone (node int) as (select distinct a from link"
        " where (select count(*) from link l where l.a = link.a and l.b not in (select node from gone)) < 2)"
        " select distinct a from link where a not in (select node from gone)",
    ),
    "even and odd": (
        by_parity,
        "with recursive even(n) as (select 1 union select dst from odd join edges on src = n where w is not null),"
        " odd(n) as (select dst from even join edges on src = n where w is not null union select n from odd)"
        " select 'even', n from even union select 'odd', n from odd",
    ),
    "a loop in a loop": (
        growing_reach,
        "with mutually recursive reached (node int) as (with recursive r(n) as (select 1 union select dst from r join edges"
        " on src = n where w <= (select count(*) from reached)) select n from r) select * from reached",
    ),
    "not linear": (
        closure,
        "with mutually recursive r (a int, b int) as (select src, dst from edges where w is not null union"
        " select x.a, y.b from r x join r y on x.b = y.a) select * from r",
    ),
}


def states(seed: int) -> list[Edges]:
    """Return the edges of each epoch, without those of unknown length."""
    held: Counter[Any] = Counter()
    edges: list[Edges] = []
    for epoch in stream(seed).changes:
        for row, diff in epoch["edges"]:
            held[row] += diff
        edges.append([row for row in held.elements() if row[2] is not None])
    return edges


@pytest.mark.parametrize("name", PROGRAMS)
def test_recursive_queries_are_the_limits_of_their_loops_at_every_epoch(name: str) -> None:
    oracle, query = PROGRAMS[name]
    for seed in (1, 2):
        expected = [typed((row, 1) for row in oracle(edges)) for edges in states(seed)]
        assert stream(seed).views(query) == expected
    assert stream(2).views(query, lambda time: time % 2 == 0) == expected
    assert stream(2).views_on_workers(query) == expected


COLUMNS = {
    "orders": "id bigint, customer text, amount bigint",
    "lines": "order_id bigint, price double, n bigint, day date, fee decimal(8, 2)",
    "edges": "src bigint, dst bigint, w bigint",
}


def in_a_loop(query: str) -> str:
    """Return a query that reads its tables round a loop, of which it is a part."""
    described = stream(1).rows_in_duckdb(f"describe {query}")[0]
    types = ", ".join(f"c{place} {row[1].replace('HUGEINT', 'BIGINT')}" for place, row in enumerate(described))
    renamed = re.sub(r"\b(orders|lines|edges)\b", r"\1_", query)
    tables = ", ".join(f"{name}_ ({columns}) as (select * from {name})" for name, columns in COLUMNS.items())
    return f"with mutually recursive result ({types}) as ({renamed}), {tables} select * from result"


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, 150))])
def test_each_query_of_the_corpus_is_right_inside_a_loop(part: int) -> None:
    for query in QUERIES[part::150]:
        expected, inside = stream(1).expected(query), in_a_loop(query)
        if not any(words in inside for words in ('"NULL"', "TUPLE(")):  # types that have no names in SQL
            assert stream(1).views(inside) == expected, query


PLAIN = [
    "with recursive r as (with edges as (select id as a, amount as b from orders) select a from edges union select b from edges"
    " join r using (a)) select * from r",
    "with recursive r(n) as (select src from edges where w > 3 union (select dst from r join edges on src = n union all"
    " select n + 10 from r where n < 4)) select * from r",
    "with recursive r(n) as (select src from edges union all (select n + 1 from r where n < 3 union all select n + 2 from r"
    " where n < 2)) select n, count(*) from r group by n",
    "with recursive r(n) as (select src from edges union (with x as (select n + 1 as m from r where n < 9), y as (select m * 2"
    " from x) select m from x union all select * from y)) select * from r",
]


@pytest.mark.parametrize("query", PLAIN)
def test_a_step_that_adds_up_several_reads_is_that_of_duckdb(query: str) -> None:
    assert stream(1).views(query) == stream(1).expected(query)


def test_a_loop_ends_where_its_limit_says() -> None:
    rows = "(values (1), (2))"
    returned = "with mutually recursive (return at recursion limit 3) r (n int) as (select * from {} v union select n + 2 from r)"
    assert stream(1).views(returned.format(rows) + " from r") == [typed(((n,), 1) for n in range(1, 7))] * len(stream(1).changes)
    for query, error in {
        "with mutually recursive (error at recursion limit 40) r (n int) as (select 1 union select n + 1 from r) from r": (
            "the recursive query r at line 1, column 55 does not settle: (41,) +1 change in round 40 of epoch 0"
        ),
        "with mutually recursive (error at recursion limit 9) r (n int) as (select 1 where 1 not in (select n from r)) from r": (
            "r at line 1, column 54 does not settle: (1,) -1 change in round 9 of epoch 0; give its rows an end"
        ),
    }.items():
        with pytest.raises(OperatorError) as caught:
            stream(1).views(query)
        assert error in str(caught.value)
    settled = "with mutually recursive (error at recursion limit 4) r (n int) as (select 1 union select n + 1 from r where n < 4)"
    assert stream(1).views(f"{settled} from r")[0] == typed(((n,), 1) for n in range(1, 5))
    once = "with mutually recursive (return at recursion limit 1)"  # as Materialize has it: those before as they are now
    members = "a (n int) as (select 1), b (n int) as (from a), c (n int) as (from d), d (n int) as (from b)"
    sides = "select 'b' as name, n from b union all select 'c', n from c union all select 'd', n from d"
    assert stream(1).views(f"{once} {members} {sides}")[0] == typed([(("b", 1), 1), (("d", 1), 1)])


@pytest.mark.parametrize(
    "query",
    [
        "with recursive r(n) as (select 1 union (with a0 as (select n + 1 as n from r where n < 3), {} from a30)) from r",
        "with a0 as (select n from lines limit 0), {} select n from a30 limit 0",
    ],
)
def test_tables_that_are_read_twice_are_planned_once(query: str) -> None:
    union, join = "select * from {0} union all select * from {0} where n < 0", "select x.n from {0} x, {0} y"
    both = union if "recursive" in query else join
    chain = ", ".join(f"a{number + 1} as ({both.format(f'a{number}')})" for number in range(30))
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            lines = dd.table(scope, SCHEMAS["lines"])
            output = dd.sql(scope, query.format(chain), lines=lines).output()
        lines.session.close()
        assert output.at(0) == ({(1,): 1, (2,): 1, (3,): 1} if "recursive" in query else {})


REFUSED = {
    "with mutually recursive r as (select 1) from r": "declares columns: r (column type, ...) AS (query)",
    "with mutually recursive r (n) as (select 1) from r": "declares columns: r (column type, ...) AS (query)",
    "with mutually recursive r (n int, m int) as (select 1) from r": "it has 1 columns, and the other side has 2",
    "with mutually recursive r (n int) as (select 'a') from r": "is VARCHAR here and BIGINT there: cast one",
    "with mutually recursive r (n int not null) as (select 1) from r": "is not supported here",
    "with mutually recursive (recursion limit 9) r (n int) as (select 1) from r": "the limit is (ERROR AT RECURSION LIMIT n)",
    "with mutually recursive (error at recursion limit 0) r (n int) as (select 1) from r": "the limit is (ERROR AT",
    "with recursive r (n int) as (select 1 union select n from r) from r": "columns have types behind WITH MUTUALLY RECURSIVE",
    "with recursive a as (select * from b), b as (select * from a) from a": "a recursive query is base UNION [ALL] step",
    "with recursive edges as (select src from lines) from edges": "src",
    "select (with mutually recursive r (n int) as (select o.id) select n from r) from orders o": "put the query into FROM",
}


@pytest.mark.parametrize("query", REFUSED)
def test_loops_that_are_not_declared_well_are_refused(query: str) -> None:
    with pytest.raises(SqlError) as caught, timely.Worker() as worker, worker.dataflow(int) as scope:
        dd.sql(scope, query, **{name: dd.table(scope, schema) for name, schema in SCHEMAS.items()})
    assert REFUSED[query] in str(caught.value)


def test_declared_columns_have_their_types() -> None:
    query = "with mutually recursive r (x decimal(4, 2), y double) as (select 99.5, 1 union select x + 0.5, y from r) from r"
    with pytest.raises(OperatorError, match=r"DECIMAL\(4, 2\)"):
        stream(1).views(query)
