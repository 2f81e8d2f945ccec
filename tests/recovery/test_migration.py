"""Changed programs go on from a checkpoint as if they had run from the beginning, by names, or are refused with what to do."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

import timely
from timely import differential as dd
from timely.errors import ChangedDataflowError, CompactedError, ConfigurationError, GraphError, TimelyWarning
from timely.recovery import MemoryStore
from timely.testing import check_migration

ORDERS = "id long, item string, n long"
ITEMS = "item string!, price double"
TABLES = {"orders": ORDERS, "items": ITEMS}
TOTALS = {"totals": "select item, sum(n) as total from orders group by item"}
BIG = {"big": "select item from totals where total > 5"}
JOINED = {"joined": "select o.id, i.price from orders o join items i on o.item = i.item"}
CHAIN = {
    "chain": "with recursive r(k) as (select min(n) from orders union select n from orders join r on id = k) select k from r"
}

Views = Mapping[str, str]


def columns(text: str) -> pa.Schema:
    """The columns of a table; those with an exclamation mark are not null."""
    types = {"long": pa.int64(), "int": pa.int32(), "double": pa.float64(), "string": pa.string()}
    parts = [part.split() for part in text.split(", ")]
    return pa.schema([pa.field(name, types[kind.strip("!")], not kind.endswith("!")) for name, kind in parts])


def program(
    views: Views,
    tables: Mapping[str, str] = TABLES,
    *,
    more: Callable[[Any, dict[str, Any]], Mapping[str, Any]] | None = None,
    without: tuple[str, ...] = (),
) -> Any:
    """A program of views by name, over tables and earlier views; ``more(scope, tables)`` returns more outputs."""

    def build(scope: timely.ScopeBuilder[int]) -> tuple[dict[str, Any], dict[str, Any]]:
        inputs: dict[str, Any] = {name: dd.table(scope, columns(text), name=name) for name, text in tables.items()}
        known = dict(inputs)
        for name, query in views.items():
            known[name] = dd.sql(
                scope, query, name=name, **{word: known[word] for word in set(re.findall(r"\w+", query)) & {*known}}
            )
        outputs = {name: known[name].output() for name in known if name not in without}
        return inputs, {**outputs, **({} if more is None else more(scope, known))}

    return build


def constants(data: Mapping[str, Any]) -> Any:
    """A table of data, and a view over it and over orders."""

    def more(scope: Any, tables: dict[str, Any]) -> Mapping[str, Any]:
        rates = dd.table(scope, pa.table(data), name="rates")
        query = "select id, rate from orders join rates on orders.item = rates.item"
        return {"rated": dd.sql(scope, query, name="rated", orders=tables["orders"], rates=rates).output()}

    return more


def grouped(definition: str, key: str, name: str = "grouped") -> Any:
    """A block with operators of a collection."""

    def more(scope: Any, tables: dict[str, Any]) -> Mapping[str, Any]:
        with scope.named(name, definition):
            column = [each.name for each in tables["orders"].columns].index(key)
            return {name: tables["orders"].collection.map(lambda row: row[column]).count().output()}

    return more


def recent(scope: Any, tables: dict[str, Any]) -> Mapping[str, Any]:
    with scope.named("recent"):
        return {"recent": tables["orders"].keep_recent("n", 3)[0].output()}


def looped(scope: Any, tables: dict[str, Any]) -> Mapping[str, Any]:
    with scope.named("looped"):
        edges = tables["orders"].collection.map(lambda row: (row[0], row[2]))
        less = edges.iterate(lambda loop, pairs: pairs.map(lambda pair: (pair[0], min(pair[1], 3))).concat(pairs).distinct())
        return {"looped": less.output()}


def late(scope: Any, tables: dict[str, Any]) -> Mapping[str, Any]:
    with scope.named("late"):
        return {"late": tables["orders"].collection.delay(lambda time: time + 1).output()}


def unnamed(scope: Any, tables: dict[str, Any]) -> Mapping[str, Any]:
    return {"unnamed": tables["orders"].select("id").distinct().output()}


def methods(condition: str, size: int = 5) -> Any:
    """A view over what methods of a table make."""

    def more(scope: Any, tables: dict[str, Any]) -> Mapping[str, Any]:
        windows = tables["orders"].where(condition).tumbling("n", size)
        return {
            "counts": dd.sql(
                scope, "select window_start, count(*) as c from w group by window_start", name="counts", w=windows
            ).output()
        }

    return more


def batches(scope: Any, tables: dict[str, Any]) -> Mapping[str, Any]:
    tables["v"].to_batches().capture()
    return {}


def below(view: str) -> Any:
    """Unnamed operators below a view: of a collection, with their state."""

    def more(scope: Any, tables: dict[str, Any]) -> Mapping[str, Any]:
        return {"below": tables[view].collection.map(len).count().output()}

    return more


def running(scope: Any, tables: dict[str, Any]) -> Mapping[str, Any]:
    """Unnamed operators below a view whose state depends on how the rows came about."""
    changes = tables["totals"].collection.to_stream()
    changes.map(lambda change: ("all", 1)).state_machine(lambda key, one, state: ((state or 0) + 1, [state])).capture()
    return {}


@attrs.frozen
class Pair:
    """Two programs; ``refusal`` is a part of the text where the new one cannot go on."""

    old: Any
    new: Any
    refusal: str | None = None
    change: Mapping[str, Any] = attrs.field(factory=dict)


def of_views(old: Views, new: Views, refusal: str | None = None, **change: Any) -> Pair:
    return Pair(program(old), program(new), refusal, change)


def of_schemas(old: str, new: str, refusal: str | None = None, **change: Any) -> Pair:
    counted = {"c": "select count(*) as c, max(n) as m from orders"}
    return Pair(program(counted, {"orders": old}), program(counted, {"orders": new}), refusal, change)


PAIRS = {
    "nothing": of_views(TOTALS, TOTALS),
    "a view more": of_views(TOTALS, TOTALS | BIG),
    "a view more in front": of_views(TOTALS, JOINED | TOTALS),
    "a first view": of_views({}, TOTALS | BIG),
    "a join more": of_views({}, JOINED),
    "greatest numbers more": of_views(TOTALS, TOTALS | {"most": "select n, max(id) as m from orders group by n"}),
    "a loop more": of_views(TOTALS, TOTALS | CHAIN),
    "a constant view more": of_views({}, {"one": "select 1 as one"}),
    "a view less": of_views(TOTALS | JOINED, TOTALS),
    "all views gone": of_views(TOTALS | BIG, {}),
    "other order": of_views(TOTALS | JOINED, JOINED | TOTALS),
    "other spelling": of_views(TOTALS, {"totals": "SELECT item, /* all */ sum(n) AS total FROM orders GROUP BY item"}),
    "other aggregate": of_views(TOTALS, {"totals": "select item, max(n) as total from orders group by item"}),
    "other constant": of_views({"v": "select id from orders where n > 1"}, {"v": "select id from orders where n > 2"}),
    "other view below": of_views(TOTALS | BIG, {"totals": "select item, count(*) as total from orders group by item"} | BIG),
    "other view above": of_views(TOTALS | BIG, TOTALS | {"big": "select item from totals where total > 2"}),
    "both": of_views(
        TOTALS | BIG, {"totals": "select item, min(n) as total from orders group by item", "big": "select * from totals"}
    ),
    "other columns": of_views(TOTALS | BIG, {"totals": "select total, item from (" + TOTALS["totals"] + ")"} | BIG),
    "other join": of_views(JOINED, {"joined": "select o.id, i.price from orders o left join items i on o.item = i.item"}),
    "other side": of_views(JOINED, {"joined": "select o.id, i.n as price from orders o join orders i on o.item = i.item"}),
    "loop changed": of_views(CHAIN, {"chain": CHAIN["chain"].replace("min(n)", "max(n)")}),
    "distinct": of_views({"v": "select item from orders"}, {"v": "select distinct item from orders"}),
    "top": of_views({"v": "select id from orders order by n limit 2"}, {"v": "select id from orders order by n limit 3"}),
    "count of nothing": of_views({}, {"v": "select count(*) as c from orders where n > 1000"}),
    "global to grouped": of_views({"v": "select sum(n) as s from orders"}, {"v": "select sum(n) as s from orders group by id"}),
    "view renamed": of_views(TOTALS | BIG, {"sums": TOTALS["totals"], "big": BIG["big"].replace("totals", "sums")}),
    "view renamed with its state": of_views(TOTALS, {"sums": TOTALS["totals"]}, renamed={"totals": "sums"}),
    "table renamed": Pair(
        program(TOTALS, {"orders": ORDERS}),
        program({"totals": TOTALS["totals"].replace("orders", "sales")}, {"sales": ORDERS}),
        None,
        {"renamed": {"orders": "sales"}},
    ),
    "view dropped": of_views(TOTALS | BIG, TOTALS | BIG, dropped=["totals"]),
    "table more": Pair(program(TOTALS, {"orders": ORDERS}), program(TOTALS | JOINED, TABLES)),
    "table gone": Pair(program(TOTALS), program(TOTALS, {"orders": ORDERS}), "'items' is gone, and its rows would be lost"),
    "table given up": Pair(program(TOTALS), program(TOTALS, {"orders": ORDERS}), None, {"dropped": ["items"]}),
    "column wider": of_schemas("id long, n int", "id long, n long"),
    "table given up for other columns": of_schemas("id long, n double", "id long, n long", None, dropped=["orders"]),
    "table given up for a narrower column": of_schemas("id long, n long", "id long, n int", None, dropped=["orders"]),
    "column of another kind": of_schemas("id long, n long", "id double, n double"),
    "column more": of_schemas("id long, n long", "id long, n long, item string"),
    "column less": of_schemas("id long, n long, item string", "n long"),
    "null allowed": of_schemas("id long!, n long!", "id long, n long"),
    "column narrower": of_schemas(
        "id double, n double", "id long, n double", "'id' was DOUBLE in the checkpoint, which does not become"
    ),
    "null forbidden": of_schemas("id long, n long", "id long, n long, k long!", "a row in the checkpoint that is none now"),
    "table view": Pair(
        program({}), program({"items": "select item from orders"}, {"orders": ORDERS}), "it was table, and is view"
    ),
    "data": Pair(*(program({}, more=constants({"item": ["a", "b"], "rate": rate})) for rate in ([1, 2], [1, 3]))),
    "block more": Pair(program({}), program({}, more=grouped("", "item"))),
    "block changed": Pair(
        program({}, more=grouped("item", "item")),
        program({}, more=grouped("n", "n")),
        "'grouped' has changed, it was item, and is n",
    ),
    "block renamed": Pair(program({}, more=grouped("", "item", "by_item")), program({}, more=grouped("", "n", "by_n"))),
    "block below a changed table": Pair(
        program({}, {"orders": "id long, n int"}, more=grouped("", "id")),
        program({}, {"orders": "id double, n int"}, more=grouped("", "id")),
    ),
    "loop in a block": Pair(program({}), program({}, more=looped)),
    "recent rows": Pair(program({}), program({}, more=recent), "operator 'keep_recent'.* may depend on how they came about"),
    "later": Pair(program({}), program({}, more=late), "operator 'delay'.* may depend on how they came about"),
    "unnamed": Pair(program({}), program({}, more=unnamed), "unnamed operators have changed, .*; name what is to change"),
    "methods": Pair(program({}, more=methods("n > 0")), program({}, more=methods("n  > 0"))),
    "other condition": Pair(program({}, more=methods("n > 0")), program({}, more=methods("n > 1")), "it has query .*n > 0"),
    "methods over other columns": Pair(
        program({}, {"orders": "id long, n long"}, more=methods("n > 0")),
        program({}, {"orders": "n long, id long"}, more=methods("n > 0")),
        "it has query .* over this.id BIGINT, n BIGINT., and now",
    ),
    "batches of other columns": Pair(
        program({"v": "select id, n from orders"}, more=batches),
        program({"v": "select n, id from orders"}, more=batches),
        "it has to_batches over id BIGINT, n BIGINT, and now",
    ),
    "other windows": Pair(program({}, more=methods("n > 0")), program({}, more=methods("n > 0", 3)), "it has tumbling n 5"),
    "unnamed below": Pair(
        program(TOTALS, more=below("totals")), program({"totals": "select n from orders"}, more=below("totals"))
    ),
    "running count below": Pair(
        program(TOTALS, more=running),
        program({"totals": "select n from orders"}, more=running),
        "the unnamed operators would be sent sums .* operator 'map' .* may depend on how they came about",
    ),
}


def stream(choose: random.Random, epochs: int) -> list[dict[str, Any]]:
    """Rows that come, and some that go."""
    live: dict[str, list[Any]] = {name: [] for name in TABLES}
    sent: list[dict[str, Any]] = []
    for _ in range(epochs):
        epoch: dict[str, Any] = {}
        for name, rows in live.items():
            changes = epoch[name] = []
            for _ in range(choose.randint(0, 3)):
                row = {
                    "id": choose.randint(0, 3),
                    "item": choose.choice("abc"),
                    "n": choose.randint(0, 4),
                    "k": 1,
                    "price": choose.choice([1.5, None]),
                }
                rows.append(row)
                changes.append((row, 1))
            if rows and choose.random() < 0.4:
                changes.append((rows.pop(choose.randrange(len(rows))), -1))
        sent.append(epoch)
    sent[0]["orders"].append(({"id": 1, "item": "a", "n": 2}, 1))  # some refusals are for rows
    return sent


def check(name: str, seed: object, epochs: int, at: list[int] | None) -> None:
    choose = random.Random(f"{name} {seed}")
    pair = PAIRS[name]
    sent = stream(choose, epochs)
    at = [choose.randint(1, epochs - 1)] if at is None else at
    workers = [choose.randint(1, 3) for _ in range(3)]
    refusal = check_migration(pair.old, pair.new, sent, at=at, workers=workers, **pair.change)
    assert (refusal is None) == (pair.refusal is None), refusal
    assert refusal is None or re.search(pair.refusal or "", refusal), refusal


@pytest.mark.parametrize("name", PAIRS)
def test_a_changed_program_goes_on_as_if_it_had_run_from_the_beginning(name: str) -> None:
    check(name, 0, 5, None)


@pytest.mark.soak
@pytest.mark.parametrize("name", PAIRS)
def test_a_changed_program_goes_on_from_every_epoch(name: str) -> None:
    for seed in range(1, 6):
        check(name, seed, 6, [1, 2, 3, 4, 5])


QUERIES = """
select item, sum(n) as n from {a} group by item
select distinct item, n from {a}
select a.item, b.n from {a} a left join {b} b on a.n = b.n
select item, n from {a} union select item, n from {b}
select item, n from {a} except all select item, n from {b}
select item, n from {a} order by n desc, item limit 2
select item, sum(n) over (partition by item order by n) as n from {a}
select item, n from {a} where not exists (select 1 from {b} b where b.n > {a}.n)
select item, count(distinct n) as n from {a} group by rollup(item)
with recursive r(item, n) as (select item, n from {a} union select r.item, b.n from {b} b join r on b.n = r.n + 1) select * from r
select 'x' as item, 1 as n
""".strip().split("\n")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_any_chain_of_views_goes_on_as_any_other(seed: int) -> None:
    choose = random.Random(seed)

    def views(some: Views) -> Views:
        """Three views, each over those before; those of ``some`` stay now and then."""
        chain = {"v0": "select item, n from orders"}
        for name in ("v1", "v2", "v3"):
            query = choose.choice(QUERIES).format(a=choose.choice([*chain]), b=choose.choice([*chain]))
            chain[name] = some[name] if name in some and choose.random() < 0.5 else query
        return chain

    old = views({})
    programs = program(old), program(views(old))
    workers = [choose.randint(1, 3) for _ in range(3)]
    assert check_migration(*programs, stream(choose, 5), at=[choose.randint(1, 4)], workers=workers) is None


def run(store: MemoryStore, build: Any, time: Any = int, **how: Any) -> None:
    """Build a program, and take a checkpoint."""
    worker = timely.Worker()
    with timely.Recovery(worker, store, **how) as recovery:
        with worker.dataflow(time, name="flow") as scope:
            tables, _ = build(scope)
        begin = recovery.time or 0
        for table in tables.values():
            table.session.advance_to(begin + 1)
        recovery.checkpoint(begin + 1)


@pytest.mark.parametrize("first", ["refuse", "migrate"])
def test_checkpoints_with_and_without_rows_are_not_mixed_up(first: str) -> None:
    store = MemoryStore()
    then = {"refuse": "migrate", "migrate": "refuse"}[first]
    run(store, program(TOTALS), changed=first)
    with pytest.raises(ChangedDataflowError, match=f"was written with changed='{first}', and this run has changed='{then}'"):
        run(store, program(TOTALS), changed=then)
    run(store, program(TOTALS), changed=first)


def test_a_program_that_may_change_has_totally_ordered_times() -> None:
    with pytest.raises(GraphError, match="orders: times have a total order in a program that may change .* and those of .* none"):
        run(MemoryStore(), program({}), timely.Product[int, int], changed="migrate")


@pytest.mark.parametrize("how", [{"changed": "maybe"}, {"renamed": {"a": "b"}}, {"dropped": ["a"]}])
def test_arguments_of_migrate_need_migrate(how: Any) -> None:
    with pytest.raises(ConfigurationError, match="give 'refuse' or 'migrate'; renamed= and dropped= say what 'migrate' does"):
        timely.Recovery(timely.Worker(), MemoryStore(), **how)


def test_an_import_does_not_go_on_where_its_trace_begins_anew() -> None:
    def run(store: MemoryStore, name: str) -> None:
        worker = timely.Worker()
        with timely.Recovery(worker, store, changed="migrate") as recovery:
            with worker.dataflow(int, name="first") as scope:
                orders = dd.table(scope, columns(ORDERS), name="orders")
                with scope.named(name):
                    trace = orders.collection.arrange_by_self().trace
            with worker.dataflow(int, name="second") as scope:
                trace.import_into(scope).as_collection().output()
            begin = recovery.time or 0
            orders.session.advance_to(begin + 1)
            recovery.checkpoint(begin + 1)

    store = MemoryStore()
    run(store, "one")
    with pytest.raises(ChangedDataflowError, match="/second/import#0 goes on from a checkpoint, and the trace of .* begins anew"):
        run(store, "two")
    run(store, "one")


def test_names_are_checked() -> None:
    store = MemoryStore()
    run(store, program(TOTALS | BIG), changed="migrate")
    swapped = {"totals": "big", "big": "totals"}
    for renamed, why in (({"totls": "sums"}, "neither"), ({"totals": "big"}, "both"), (swapped, "both")):
        with pytest.raises(ConfigurationError, match=f"the checkpoint has {why}"):
            run(store, program(TOTALS | BIG), changed="migrate", renamed=renamed)
    run(store, program(TOTALS | BIG), changed="migrate", renamed={"sums": "totals"})


def test_a_drop_that_stays_in_the_program_is_warned_of() -> None:
    store = MemoryStore()
    run(store, program({}, {"orders": "id long"}), changed="migrate")
    run(store, program({}, {"orders": ORDERS}), changed="migrate", dropped={"orders"})
    with pytest.warns(TimelyWarning, match="dropped={'orders'}: nothing of it has changed; leave it out"):
        run(store, program({}, {"orders": ORDERS}), changed="migrate", dropped={"orders"})


def test_a_new_output_has_no_history_before_the_change() -> None:
    store = MemoryStore()
    run(store, program({}), changed="migrate")
    worker = timely.Worker()
    with timely.Recovery(worker, store, changed="migrate"), worker.dataflow(int, name="flow") as scope:
        tables, outputs = program(TOTALS)(scope)
        for table in tables.values():
            table.session.advance_to(2)
    with pytest.raises(CompactedError, match="its history begins at 1"):
        outputs["totals"].at(0)


def test_workers_have_the_same_definitions() -> None:
    def build(worker: timely.Worker) -> None:
        with timely.Recovery(worker, MemoryStore(), changed="migrate"), worker.dataflow(int) as scope:
            dd.table(scope, pa.table({"n": range(worker.index)}, schema=pa.schema([("n", pa.int64())])), name="rates")
        worker.run()

    with pytest.raises(GraphError, match=r"worker \d has view rates: n int64, data .*, worker \d has view rates"):
        timely.execute(build, workers=2)


def test_tables_of_a_view_are_given_in_any_order() -> None:
    def build(scope: Any, *names: str) -> Any:
        tables = {name: dd.table(scope, columns(TABLES[name]), name=name) for name in TABLES}
        dd.sql(scope, JOINED["joined"], name="joined", **{name: tables[name] for name in names})
        return tables, {}

    store = MemoryStore()
    run(store, lambda scope: build(scope, "orders", "items"), changed="migrate")
    run(store, lambda scope: build(scope, "items", "orders"), changed="migrate")


def test_a_rehearsal_has_an_epoch_before_the_change_and_one_after() -> None:
    for at in (None, [0], [1]):
        with pytest.raises(ConfigurationError, match="the new program begins at one of the epochs 1 to 0 of the stream"):
            check_migration(program({}), program({}), [{}], at=at)


def test_a_name_that_is_given_away_begins_anew() -> None:
    def run(tables: Mapping[str, str], **how: Any) -> Any:
        worker = timely.Worker()
        with timely.Recovery(worker, store, changed="migrate", **how) as recovery:
            with worker.dataflow(int) as scope:
                inputs, outputs = program({}, tables)(scope)
            begin = recovery.time or 0
            for table in inputs.values():
                table.session.advance_to(begin)
                if not begin:
                    table.session.insert((7,))
                table.session.advance_to(begin + 1)
            recovery.checkpoint(begin + 1)
            return {name: output.at(begin) for name, output in outputs.items()}

    for new in ("id long", "id long, n long"):
        store = MemoryStore()
        run({"orders": "id long"})
        assert run({"orders": new, "sales": "id long"}, renamed={"orders": "sales"}) == {"orders": {}, "sales": {(7,): 1}}


def test_what_a_text_of_sql_leaves_out_is_a_change() -> None:
    query = "select item, lag(price{}) over (order by item) as last from items"
    rows = [({"item": item, "price": price}, 1) for item, price in (("a", 1.5), ("b", None), ("c", 2.5))]
    old, new = (program({"v": query.format(nulls)}) for nulls in (" ignore nulls", ""))
    assert check_migration(old, new, [{"items": rows}, {}]) is None


def total(key: str, value: int, state: int | None) -> tuple[int, list[int]]:
    return (state or 0) + value, [(state or 0) + value]


def totals_of(where: Path, names: Sequence[str], *, workers: int = 1) -> list[dict[str, int]]:
    """Add 1 to a total for each name, in the order of ``names``; ``name=text`` has a definition. Return the totals."""

    def program(worker: timely.Worker) -> dict[str, int]:
        seen: dict[str, Any] = {}
        with timely.Recovery(worker, where) as recovery:
            with worker.dataflow(int, name="flow") as scope:
                rows, stream = scope.new_input()
                for each in names:
                    name, _, definition = each.partition("=")
                    with scope.named(name, definition):
                        seen[name] = stream.map(lambda name: (name, 1)).state_machine(total).capture()
            begin = recovery.time or 0
            rows.advance_to(begin)
            if worker.index == 0:
                rows.send("all")
            rows.advance_to(begin + 1)
            recovery.checkpoint(begin + 1)
            rows.close()
            worker.run()
        return {name: value for name, output in seen.items() for _, batch in output.extract() for value in batch}

    return timely.execute(program, workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_relations_keep_their_state_in_another_order(tmp_path: Path, workers: int) -> None:
    assert sum((sum(totals.values()) for totals in totals_of(tmp_path, ["a", "b", "c"])), 0) == 3
    for count in (2, 3):
        totals = totals_of(tmp_path, ["c", "a", "b"], workers=workers)
        assert {name: value for each in totals for name, value in each.items()} == {"a": count, "b": count, "c": count}


@pytest.mark.parametrize(
    ("names", "difference"),
    [
        (["a", "b=2"], r"same: a; gone: c; changed: b \(it was 1, and is 2\)"),
        (["a", "d", "b=1", "c"], "same: a, b, c; new: d"),
        (["b=1", "c"], "same: b, c; gone: a"),
    ],
)
def test_a_refusal_says_what_is_the_same(tmp_path: Path, names: list[str], difference: str) -> None:
    totals_of(tmp_path, ["a", "b=1", "c"])
    with pytest.raises(ChangedDataflowError, match=rf"is of another dataflow: {difference}\. Run the program"):
        totals_of(tmp_path, names)
    totals_of(tmp_path, ["a", "b=1", "c"])


def test_names_are_of_one_relation_each_and_of_the_outermost_scope() -> None:
    with timely.Worker().dataflow(int) as scope:
        with scope.named("a"):
            pass
        with pytest.raises(GraphError, match=r"two relations named 'a', at test_migration.py:\d+ .* and at test_migration.py"):
            scope.named("a").__enter__()
        with scope.iterative() as loop:
            with pytest.raises(GraphError, match="named.'b'. in scope .*iterative#0.* part of what it names"):
                loop.named("b")
            handle, again = loop.feedback()
            again.connect_loop(handle)
