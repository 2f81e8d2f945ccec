"""Arrow rows in arrangements, joins and reductions give what the same records give as rows, under all conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from itertools import product
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from timely import Product, Worker
from timely import differential as dd
from timely.testing.differential import Change, run, run_resumed

pytest.importorskip("pyarrow")

PAIR: Any = Product[int, int]

VALUES: list[tuple[Any, ...]] = [("a", 1.5), ("a", -0.0), ("a", 0.0), (None, 2.5), ("b", float("inf")), ("b", None)]


def shared(left: Any, right: Any) -> Any:
    """Return a filtered arrangement, joined with another and with itself."""
    arranged, other = left.arrange_by_key(), right.arrange_by_key()
    some = arranged.filter_trace(lambda key, value: key % 2)
    return some.join(other).concat(arranged.join(arranged))


def closure(left: Any, right: Any) -> Any:
    """Return what joins reach in three rounds of a loop."""
    step = left.join_map(right, lambda key, one, two: ((key + 1) % 3, two))
    return step.iterate(
        lambda scope, reached: reached.join_map(right.enter(scope), lambda key, _, value: (key, value)).distinct()
    )


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "join": lambda left, right: left.join(right),
    "join_map": lambda left, right: left.join_map(right, lambda key, one, two: (key, one[0], two[1])),
    "semijoin": lambda left, right: left.semijoin(right.map(lambda pair: pair[0]).distinct()),
    "antijoin": lambda left, right: left.antijoin(right.map(lambda pair: pair[0]).distinct()),
    "reduce": lambda left, right: left.concat(right).reduce(lambda key, values: [(len(values), sum(map(itemgetter(1), values)))]),
    "least": lambda left, right: left.concat(right.negate()).top_k(1, by=lambda row: (str(row[0]), str(row[1] or 0.0))),
    "distinct": lambda left, right: left.concat(right).distinct(),
    "count": lambda left, right: left.concat(right).count_by_key(),
    "records": lambda left, right: left.map(lambda pair: (pair, 1)).semijoin(right.arrange_by_self()),
    "shared": shared,
    "loop": closure,
}


def changes(seed: int, time: Any) -> list[list[Change]]:
    """Return the updates of two inputs: most are taken back, all or in part, at a later time."""
    random = Random(seed)
    inputs: list[list[Change]] = [[], []]
    for updates in inputs:
        for _ in range(random.randrange(4, 14)):
            record = (random.randrange(-1, 4), random.choice(VALUES))
            when = [random.randrange(3) for _ in range(2)]
            later = [place + random.randrange(2) for place in when]
            count = random.choice((1, 1, 2))
            for at, diff in ((when, count), (later, -1)):
                updates.append((record, at[0] if time is int else PAIR(*at), diff))
    return inputs


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arrow_rows_are_rows(name: str, workers: int) -> None:
    for seed, (compact, one_by_one) in enumerate(product([False, True], repeat=2)):
        for time in (int, PAIR):
            inputs = changes(seed, time)
            conditions: Any = {"workers": workers, "compact": compact, "one_by_one": one_by_one, "containers": "arrow"}
            expected = run(PROGRAMS[name], *inputs, time=time)
            assert run(PROGRAMS[name], *inputs, time=time, **conditions) == expected, (seed, time)


@pytest.mark.parametrize("workers", [(1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_arrow_rows_resume_from_a_checkpoint(name: str, workers: tuple[int, int], tmp_path: Path) -> None:
    inputs = changes(1, int)
    resumed = run_resumed(PROGRAMS[name], *inputs, directory=tmp_path, workers=workers, compact=True, containers="arrow")
    assert resumed == run(PROGRAMS[name], *inputs)


@pytest.mark.parametrize("late", ["many", "few"])
def test_few_rows_that_meet_many_become_columns(late: str) -> None:
    """Else all that is joined after them would be rows: of TPC-DS, where tables have one row, some took 20 times as long."""
    pa = pytest.importorskip("pyarrow")
    listed: list[bool] = []

    def look(batch: Any) -> Any:
        listed.append(isinstance(batch, list))
        return batch

    many = pa.table({"k": [1, 2, 1, None] * 2_000, "n": range(8_000)})
    few = [(1, "one", Decimal("1.5"), None), (1, "first", None, None), (3, None, Decimal(2), None)]
    types = {"k": pa.int64(), "name": pa.string(), "d": pa.decimal128(6, 2), "t": pa.date32()}
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            tables = {"many": dd.table(scope, many.schema), "few": dd.table(scope, pa.schema(list(types.items())))}
            joined = dd.sql(scope, "select many.n, name, d, t from many join few on many.k = few.k", **tables)
            output = dd.from_updates(joined.collection.stream.map_batch(look)).output()
        inserts = {
            "many": lambda: tables["many"].session.insert_columns(many),
            "few": lambda: tables["few"].session.insert_batch(few),
        }
        for time, name in enumerate(sorted(inserts, key=lambda name: name == late), 1):
            inserts[name]()
            for table in tables.values():
                table.session.advance_to(time)
            output.wait(time - 1)
        results = dict(output.at(1))
        for table in tables.values():
            table.session.close()
    pairs = zip(*many.to_pydict().values(), strict=True)
    assert results == Counter((n, *row[1:]) for k, n in pairs for row in few if row[0] == k)
    assert listed and not any(listed)
