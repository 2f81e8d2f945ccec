"""Why a row is there: over the rows that are named alone the result has it, as DuckDB says too, and without any of them not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from tests.differential.beside_duckdb import register, typed
from tests.differential.random_queries import Queries
from tests.differential.sql_epochs import SCHEMAS, edge, line, order
from tests.server.client import Event, Events, ask
from timely.differential import Explainer, why
from timely.errors import ConfigurationError, SqlError, ViewError
from timely.server import Limits, Query, Views, ViewServer


def paths(edges: Any, roots: Any) -> Any:
    """The number of steps to each node."""

    def step(scope: Any, steps: Any) -> Any:
        onwards = steps.join_map(edges.enter(scope), lambda _, steps, node: (node, steps + 1))
        return roots.enter(scope).map(lambda root: (root, 0)).concat(onwards).min_by_key()

    return roots.map(lambda root: (root, 0)).iterate(step)


def in_duckdb(query: str, inputs: Mapping[str, Mapping[Any, int]]) -> Counter[Any]:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for name, schema in SCHEMAS.items():
            register(connection, name, list(Counter(dict(inputs.get(name, {}))).elements()), schema)
        return typed((row, 1) for row in connection.execute(query).fetchall())


def check_query(seed: int) -> int:
    """Ask why some rows of a random query are there, and return how many they are."""
    chance, query = random.Random(seed), Queries(seed).query()
    views = Views(limits=Limits(query_seconds=3600))  # a machine may be slow
    for (name, schema), make in zip(SCHEMAS.items(), (order, line, edge)):
        views.table(name, schema, [make(chance) for _ in range(8)])
    try:
        views.view("v", query)
        rows = views.read("v").rows
    except (SqlError, ViewError):
        return 0
    for row, _ in rows[:2]:
        inputs = views.why("v", row=row).inputs
        (wanted,) = typed([(row, 1)])
        assert in_duckdb(query, inputs)[wanted] > 0, (query, row, inputs)
        for name, chosen in inputs.items():
            for each in chosen:
                fewer = {**inputs, name: {other: times for other, times in chosen.items() if other is not each}}
                assert not in_duckdb(query, fewer)[wanted], (query, row, inputs, each)
    return len(rows[:2])


def test_rows_of_random_queries_follow_from_few_rows_that_duckdb_needs_too() -> None:
    assert sum(check_query(seed) for seed in range(30, 50)) > 15


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 4000, 200))
def test_rows_of_three_thousand_random_queries_follow_from_few_rows(first: int) -> None:
    assert sum(check_query(seed) for seed in range(first, first + 200)) > 100


@pytest.mark.parametrize("seed", range(3))
def test_a_shortest_path_is_explained_by_its_edges(seed: int) -> None:
    chance = random.Random(seed)
    edges = {(chance.randrange(60), chance.randrange(60)): chance.randint(1, 2) for _ in range(200)}
    steps, reached = {0: 0}, [0]
    for node in reached:
        for source, target in sorted(edges):
            if source == node and target not in steps:
                steps[target] = steps[node] + 1
                reached.append(target)
    node = reached[-1]
    answer = why(paths, {"edges": edges, "roots": [0]}, (node, steps[node]))
    inputs, path = answer.inputs, answer.inputs["edges"]
    assert inputs["roots"] == {0: 1}
    assert len(path) == steps[node]
    assert path.items() <= edges.items()
    here = 0
    while here != node:  # the edges make one path
        ((_, here),) = [each for each in path if each[0] == here]
    made = [each for _, each in answer.steps.lines()]
    joined = {each.record: each.round for each in made if each.operator == "join_map"}
    assert joined == {(place, count): (count - 1,) for place, count in steps.items() if any(end == place for _, end in path)}
    assert {each.record for each in made if each.operator == "edges"} == set(path)
    assert all("in paths" in each.at for each in made if each.operator not in ("edges", "roots"))


@pytest.mark.parametrize("seed", range(3))
def test_a_followed_answer_is_right_after_each_change(seed: int) -> None:
    chance = random.Random(seed)
    edges = {(chance.randrange(12), chance.randrange(12)) for _ in range(20)}
    explainer = Explainer(paths, {"edges": edges, "roots": [0]})
    rows = [(node, steps) for node in range(1, 12) for steps in (1, 2, 3)]
    answers = {row: explainer.follow(row) for row in rows}
    explained = 0
    for _ in range(15):
        edge = (chance.randrange(12), chance.randrange(12))
        explainer.update({"edges": [(edge, -1 if edge in edges else 1)]})
        edges ^= {edge}
        distances, reached = {0: 0}, [0]
        for node in reached:
            for source, target in edges:
                if source == node and target not in distances:
                    distances[target] = distances[node] + 1
                    reached.append(target)
        for (node, steps), followed in answers.items():
            answer = followed.provenance
            assert (answer is not None) == (distances.get(node) == steps)
            if answer is not None:
                explained += 1
                assert len(answer.inputs["edges"]) == steps
                assert answer.inputs["edges"].keys() <= edges
    assert explained > 50


def collatz(numbers: Any) -> Any:
    """Numbers that move round by round: what a row follows from has gone when the loop rests."""
    moved = numbers.map(lambda n: (n, n)).iterate(lambda scope, pairs: pairs.map(lambda pair: (pair[0], max(pair[1] - 3, 0))))
    return moved.map(lambda pair: (pair[1], pair[0])).reduce(lambda key, rows: [(sum(value for value, _ in rows), 1)])


def test_programs_that_are_not_monotone_are_explained_by_what_they_need() -> None:
    def unique(words: Any, stops: Any) -> Any:
        return words.antijoin(stops).map(lambda pair: (pair[0][0], 1)).count_by_key().filter(lambda pair: pair[1] == 2)

    rows: dict[str, list[Any]] = {"words": [("ab", 1), ("ac", 1), ("ad", 1), ("b", 2)], "stops": ["ad"]}
    assert why(unique, rows, ("a", 2)).inputs == {"words": {("ab", 1): 1, ("ac", 1): 1}}
    assert why(collatz, {"numbers": [4, 5, 6]}, (0, 15)).inputs == {"numbers": {4: 1, 5: 1, 6: 1}}
    parity = lambda words: words.map(lambda word: (len(word) % 2, word)).reduce(lambda _, rows: [(len(rows) % 2, 1)])  # noqa: E731
    assert sum(why(parity, {"words": ["a", "b", "c", "d", "e"]}, (1, 1)).inputs["words"].values()) == 1


def test_a_row_that_is_not_there_and_programs_that_change_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"the result has no row 7"):
        why(lambda words: words.map(len), {"words": ["to", "be"]}, 7)
    explainer = Explainer(lambda words: words.map(len), {"words": ["to"]})
    with pytest.raises(ConfigurationError, match="no input word: there are words"):
        explainer.update({"word": [("be", 1)]})
    with pytest.raises(ConfigurationError, match=r"fails over these rows: .*int.* has no len"):
        explainer.update({"words": [(2, 1)]})
    builds = count(1)

    def changed(words: Any) -> Any:
        number = max(next(builds), 2)  # the program and the first try agree
        return words.map(lambda _: number)

    with pytest.raises(ConfigurationError, match="over some rows once and once not"):
        why(changed, {"words": ["to"]}, 2)
    with pytest.raises(ConfigurationError, match="not found out in 0 s"):
        why(lambda words: words, {"words": ["to"]}, "to", seconds=0.0)


def test_a_program_that_runs_for_ever_without_a_row_is_ended() -> None:
    def counted(bounds: Any, starts: Any) -> Any:
        def step(scope: Any, numbers: Any) -> Any:
            onwards = numbers.map(lambda n: (n, n)).antijoin(bounds.enter(scope)).map(lambda pair: pair[0] + 1)
            return starts.enter(scope).concat(onwards).distinct()

        return starts.iterate(step)

    with pytest.raises(ConfigurationError, match=r"why 3 is there was not found out in 0\.5 s"):
        why(counted, {"bounds": [5], "starts": [0]}, 3, seconds=0.5)


def test_rows_without_which_the_program_fails_are_named() -> None:
    def shares(parts: Any, wholes: Any) -> Any:
        whole = wholes.map(lambda n: ("all", n)).count_by_key().map(lambda each: ("all", each[1]))
        return (
            parts.map(lambda n: ("all", n))
            .concat(whole.map(lambda each: ("all", -each[1])))
            .reduce(lambda key, rows: [(1 / sum(value < 0 for value, _ in rows), 1)])
        )

    explanation = why(shares, {"parts": [2, 3], "wholes": [9, 8]}, ("all", 1.0))
    assert explanation.inputs == {"wholes": {9: 1}} or explanation.inputs == {"wholes": {8: 1}}


@pytest.mark.parametrize(
    ("query", "row", "inputs"),
    [
        ("select n from t where n not in (select o.n from o join p on o.n = p.n and p.n > 9 and o.n > 1)", 2, {"t": {(2,): 1}}),
        ("select n from t union all select o.n from o join p on o.n = p.n and o.n > 7", 2, {"t": {(2,): 1}}),
        ("select 1 as one", 1, {}),
    ],
)
def test_tables_that_a_row_does_not_need_are_not_looked_at(query: str, row: int, inputs: dict[str, Any]) -> None:
    views = Views()
    for name, rows in (("t", [(1,), (2,)]), ("o", [(1,)]), ("p", [(5,)])):
        views.table(name, "n long", rows)
    views.view("v", query)
    assert views.why("v", row=(row,)).inputs == inputs


def test_a_search_has_the_bounds_of_a_query() -> None:
    views = Views(Limits(queries=1, query_memory=1))
    views.table("t", "n long, word string", [(1, "few"), (1, "few")])
    views.view("v", "select word from t")
    assert views.why("v").inputs == {"t": {(1, "few"): 2}}
    with views.query("select n from t"), pytest.raises(ViewError, match="1 query runs already"):
        views.why("v")
    views.commit({"t": [((n, f"{n:01000d}"), 1) for n in range(20_000)]})
    with pytest.raises(ViewError, match="needs more than"):
        views.why("v", row=("few",))


def test_steps_are_of_the_rows_that_are_named_and_as_deep_as_a_loop() -> None:
    views = Views(Limits(query_seconds=20))
    views.table("t", "n long, word string", [(n, "few") for n in range(30)])
    views.view("some", "select n from t")
    views.view("most", "select max(n) as n from some")
    views.view("counted", "with recursive r(n) as (select 1 union select n + 1 from r where n < 300) from r")
    answer = views.why("most")
    assert answer.inputs == {"t": {(29, "few"): 1}}
    assert [each.record for _, each in answer.steps.lines()][-1] == ((29, "few"),)
    assert all(len(each.record) == 1 for _, each in answer.steps.lines())
    deep = views.why("counted", row=(300,)).steps
    assert {(n,) for n in range(1, 301)} <= {each.record for _, each in deep.lines()}
    assert len(str(deep)) < 200 * len(list(deep.lines()))
    views.commit({"t": {(30, "x" * 2_000_000): 1}})
    with pytest.raises(ConfigurationError, match="the answer takes more than 1"):
        views.why("t", row=(30, "x" * 2_000_000))


def test_views_of_views_are_explained_by_rows_of_tables_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    views = Views(Limits(query_seconds=20))
    views.table("orders", "customer string, price long", [("ada", 30), ("bob", 5), ("bob", 9), ("eve", 9)])
    views.table("places", "customer string, place string", [("ada", "Rome"), ("bob", "Oslo"), ("eve", "Oslo")])
    views.view("totals", "select customer, sum(price) as total from orders group by customer")
    views.view("by_place", "select place, max(total) as most from totals join places using (customer) group by place")
    with ViewServer(views) as server:
        answer = ask(server.port, "/views/by_place/why?place=Oslo").content
        assert answer["row"] == {"place": "Oslo", "most": 14}
        assert answer["inputs"]["places"] == [[{"customer": "bob", "place": "Oslo"}, 1]]
        assert sorted(row["price"] for row, _ in answer["inputs"]["orders"]) == [5, 9]
        for query, reason in (
            ("", "several rows fulfil the conditions"),
            ("?place=Bonn", "no row fulfils the conditions"),
            ("?town=Oslo", "no column 'town'"),
        ):
            reply = ask(server.port, f"/views/by_place/why{query}")
            assert (reply.status, reason in str(reply.content)) == (400, True)
        search = Query.why

        def renamed(self: Query, *arguments: Any) -> Any:
            provenance = search(self, *arguments)
            views.run_script("drop table places cascade; create table places (town varchar, customer varchar)")
            return provenance

        monkeypatch.setattr(Query, "why", renamed)
        assert ask(server.port, "/views/by_place/why?place=Oslo").status == 503


def test_an_answer_that_is_followed_changes_with_the_tables() -> None:
    views = Views(Limits(query_seconds=20))
    views.table("edges", "source long, target long", [(0, 1), (1, 2), (0, 3)])
    views.view("reached", "with recursive r(node) as (select 0 union select target from edges join r on source = node) from r")

    def change(changes: dict[tuple[int, int], int]) -> None:
        views.commit({"edges": changes})

    def edges(event: Event) -> list[tuple[int, int]]:
        assert event.name == "why"
        assert event.data["time"] == views.time
        return sorted((row["source"], row["target"]) for row, _ in event.data["inputs"]["edges"])

    events = {"Accept": "text/event-stream"}
    with (
        ViewServer(views) as server,
        Events(server.port, "/views/reached/why?node=2", **events) as why_two,
        Events(server.port, "/views/reached/why_not?node=2", **events) as why_not_two,
    ):
        assert edges(why_two.next()) == [(0, 1), (1, 2)]
        assert "has such a row" in why_not_two.next().data["error"]
        change({(5, 6): 1})  # which the answer does not need: nothing is sent
        change({(3, 2): 1, (1, 2): -1})
        assert edges(why_two.next()) == [(0, 3), (3, 2)]
        change({(3, 2): -1})
        assert "no row fulfils" in why_two.next().data["error"]
        drops = why_not_two.next().data["drops"]
        assert {drop["operator"] for drop in drops} == {"VALUES", "table edges"}
        change({(6, 2): 1, (0, 6): 1})
        assert edges(why_two.next()) == [(0, 6), (6, 2)]
        assert "has such a row" in why_not_two.next().data["error"]
        views.view("reached", "select target as node from edges", replace=True)
        assert edges(why_two.next()) == [(6, 2)]
        views.run_script("drop view reached")
        views.view("reached", "select source as node from edges")
        for followed in (why_two, why_not_two):
            assert followed.next().name == "dropped"
        for path, status in (("reached/why?town=2", 400), ("nowhere/why_not", 404)):
            assert ask(server.port, f"/views/{path}", **events).status == status
