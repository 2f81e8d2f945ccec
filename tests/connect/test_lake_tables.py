"""Delta and Iceberg tables: each change once, whatever dies and whatever wrote it, and what is lost is an error."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timely
from tests.connect.keyed_changes import keyed_changes
from tests.connect.test_served import wait
from timely import connect
from timely import differential as dd
from timely.connect import Change
from timely.errors import ConnectorError, OperatorError
from timely.recovery import MemoryStore, Recovery
from timely.server import Connectors, Views
from timely.testing import MemoryBroker, MemorySink, check_sink

try:
    import deltalake
    import pyiceberg.catalog
except ModuleNotFoundError:
    pytest.skip("deltalake or pyiceberg is not installed", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records")

SCHEMA = pa.schema([pa.field("part", pa.string()), pa.field("n", pa.int64()), pa.field("note", pa.string())])


class Delta:
    """A Delta table in a folder, and what a test does with it."""

    def __init__(self, folder: Path, schema: pa.Schema = SCHEMA) -> None:
        self.path, self.schema = folder / "items", schema
        deltalake.DeltaTable.create(self.path, schema, partition_by=["part"] if schema is SCHEMA else None)

    @property
    def table(self) -> Any:
        return deltalake.DeltaTable(self.path)

    def source(self, **options: Any) -> Any:
        return connect.DeltaLakeSource(self.path, **options)

    def sink(self, **options: Any) -> Any:
        return connect.DeltaLakeSink(self.path, **{"key": ["part", "n"], **options})

    def options(self) -> str:
        return f"connector = 'delta', path = '{self.path}'"

    def rows(self) -> Counter[Any]:
        return Counter(tuple(row.values()) for row in self.table.to_pyarrow_table().to_pylist())

    def append(self, rows: list[Any]) -> None:
        deltalake.write_deltalake(self.path, arrow(rows, self.schema), mode="append")

    def overwrite(self, rows: list[Any]) -> None:
        deltalake.write_deltalake(self.path, arrow(rows, self.schema), mode="overwrite")

    def delete(self, n: int) -> None:
        self.table.delete(f"n = {n}")

    def rewrite(self) -> None:
        self.table.optimize.compact()

    def forget(self) -> None:
        self.table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


class Iceberg:
    """An Iceberg table of a catalog in SQLite, and what a test does with it."""

    def __init__(self, folder: Path, schema: pa.Schema = SCHEMA) -> None:
        self.schema = schema
        self._catalog = {"name": "tests", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
        catalog = self._open()
        catalog.create_namespace("shop")
        catalog.create_table("shop.items", schema)
        catalog.close()

    def _open(self) -> Any:
        return pyiceberg.catalog.load_catalog(**self._catalog)

    @property
    def table(self) -> Any:
        return self._open().load_table("shop.items")

    def source(self, **options: Any) -> Any:
        return connect.IcebergSource(self._catalog, "shop.items", **options)

    def sink(self, **options: Any) -> Any:
        return connect.IcebergSink(self._catalog, "shop.items", **{"key": ["part", "n"], **options})

    def options(self) -> str:
        properties = ", ".join(f"{name} = '{value}'" for name, value in self._catalog.items() if name != "name")
        return f"connector = 'iceberg', catalog = 'tests', table = 'shop.items', {properties}"

    def rows(self) -> Counter[Any]:
        return Counter(tuple(row.values()) for row in self.table.scan().to_arrow().to_pylist())

    def append(self, rows: list[Any]) -> None:
        self.table.append(arrow(rows, self.schema))

    def overwrite(self, rows: list[Any]) -> None:
        self.table.overwrite(arrow(rows, self.schema))

    def delete(self, n: int) -> None:
        self.table.delete(f"n = {n}")

    def rewrite(self) -> None:
        self.table.overwrite(self.table.scan().to_arrow())

    def forget(self) -> None:
        table = self.table
        table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:-1]]).commit()


def arrow(rows: list[Any], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row)) for row in rows], schema)


@pytest.fixture(params=[Delta, Iceberg])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def some_rows(choice: random.Random) -> list[Any]:
    return [(choice.choice("ab"), choice.randrange(5), choice.choice(["x", "it's", None])) for _ in range(choice.randint(1, 4))]


@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_a_view_of_a_table_follows_whatever_writes_it_and_whatever_dies(lake: Any, kills: int) -> None:
    """What the table says and what the sink has are the same after each run, of which most are killed somewhere."""
    choice = random.Random(kills)
    target, store = MemoryBroker(), MemoryStore()

    class Killed(Exception):
        pass

    class Fragile(MemorySink):
        def commit(self, epoch: int, changes: Any) -> None:
            if choice.random() < 0.3:
                raise Killed
            super().commit(epoch, changes)
            if choice.random() < 0.3:
                raise Killed

    def program(worker: timely.Worker) -> None:
        with Recovery(worker, store) as recovery:
            with worker.dataflow(int) as scope:
                table = dd.table(scope, lake.source(bounded=True))
                table.select("part", "n", "note").write(Fragile(target))
            connect.run(recovery, seconds=0)

    while kills > 0:
        for _ in range(choice.randint(0, 3)):
            rows, n = some_rows(choice), choice.randrange(5)
            choice.choice([partial(lake.append, rows), partial(lake.overwrite, rows), partial(lake.delete, n), lake.rewrite])()
        try:
            timely.execute(program, workers=choice.randint(1, 2))
        except OperatorError as error:
            assert isinstance(error.__cause__, Killed), error
            kills -= 1
        else:
            assert target.rows == lake.rows()


@pytest.mark.parametrize("kills", [1, pytest.param(200, marks=pytest.mark.soak)])
def test_a_table_equals_a_view_whatever_dies(lake: Any, kills: int) -> None:
    number = 0
    while kills > 0:
        number += 1
        changes = keyed_changes(number, 15, lambda choice: some_rows(choice)[0])
        sink = partial(lake.sink, name=f"sink{number}")
        kills -= check_sink(sink, lake.rows, changes, columns=SCHEMA.names, seed=number, odds=0.15)
        lake.overwrite([])


@pytest.mark.parametrize("kind", [Delta, Iceberg])
@pytest.mark.parametrize(
    "keys",
    [
        ("é", "a'b", ""),
        (b"\x00\xff", b"", b"a"),
        (Decimal("1.10"), Decimal("-2.00"), Decimal("0.00")),
        (datetime(2024, 2, 29, 12), datetime.min, datetime.max),
    ],
)
def test_a_key_of_any_type_is_found_again(kind: Any, keys: Any, tmp_path: Path) -> None:
    lake = kind(tmp_path, pa.schema([("k", pa.array(keys).type), ("v", pa.float64())]))
    sink, source = lake.sink(key="k"), lake.source()
    sink.open("history", ["k", "v"])
    sink.commit(1, [((key, 0.5), 1) for key in keys])
    begin = source.read("versions", None, 1).end
    changes: list[Change] = [((keys[0], 0.5), -1), ((keys[0], math.nan), 1), ((keys[1], 0.5), -1)]
    sink.commit(2, changes)
    there = source.read("versions", begin, 1).batch
    assert sorted(map(repr, there)) == sorted(map(repr, changes))
    sink.commit(3, [(row, -diff) for row, diff in there])
    assert lake.rows() == dict.fromkeys([(key, 0.5) for key in keys], 1)
    sink.commit(4, there)
    assert sorted(map(repr, lake.rows())) == sorted(map(repr, [(keys[0], math.nan), (keys[2], 0.5)]))


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_lists_and_structs_go_too(kind: Any, tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("l", pa.list_(pa.int64())), ("s", pa.struct([("a", pa.string())]))])
    lake = kind(tmp_path, schema)
    lake.append([(1, [1, None], {"a": "x"}), (2, [], None)])
    source = lake.source()
    begin = source.read("versions", None, 1).end
    lake.delete(1)
    assert source.read("versions", begin, 1).batch == [((1, (1, None), ("x",)), -1)]


def test_what_is_lost_is_an_error(lake: Any) -> None:
    lake.append([("a", 1, "x"), ("a", 2, "x")])
    source = lake.source()
    begin = source.read("versions", None, 1).end
    lake.overwrite([("b", 1, "x")])
    assert sorted(source.read("versions", begin, 1).batch) == [(("a", 1, "x"), -1), (("a", 2, "x"), -1), (("b", 1, "x"), 1)]
    lake.forget()
    with pytest.raises(
        ConnectorError, match=rf"what has changed since version {begin.version} is not read; if its files are gone, start anew"
    ):
        source.read("versions", begin, 1)
    with pytest.raises(ConnectorError, match="its table was another one"):
        source.read("versions", begin._replace(id="x"), 1)
    with pytest.raises(ConnectorError, match="its table was another one, .* with the columns n int64"):
        source.read("versions", begin._replace(columns="n int64"), 1)
    source.close()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([(("a", 1, "y"), 1)], "does not have the rows that it was given: it should have 0 rows of 1 keys, and has 1"),
        ([(("a", 2, "y"), -1)], "it should have 1 rows of 1 keys, and has 0"),
        ([(("b", "one", "y"), 1)], "n is int64, and 'one' came"),
        ([(("b", 1.5, "y"), 1)], "n is int64, and 1.5 came"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused(lake: Any, changes: list[Change], text: str) -> None:
    sink = lake.sink()
    assert sink.open("history", SCHEMA.names) is None
    sink.commit(1, [(("a", 1, "x"), 1)])
    with pytest.raises(ConnectorError, match=text):
        sink.commit(2, changes)
    sink.commit(3, [(("a", 1, "x"), -1), (("a", 1, None), 1)])
    assert lake.rows() == {("a", 1, None): 1}
    assert sink.open("history", SCHEMA.names) == 3
    with pytest.raises(ConnectorError, match="has the columns part, n, note, and the view has part, n"):
        sink.open("history", ["part", "n"])
    sink.close()


def test_another_run_cannot_write_and_a_compaction_may(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer, others = lake.sink(), lake.sink(), lake.sink(name="others")
    for number, sink in enumerate((older, newer, others)):
        sink.open(f"history{number}", SCHEMA.names)
    newer.commit(1, [(("a", 1, "x"), 1)])
    others.commit(7, [(("a", 2, "x"), 1)])
    with pytest.raises(ConnectorError, match="another run has opened"):
        older.commit(1, [(("a", 3, "x"), 1)])
    with pytest.raises(ConnectorError, match="has the rows of other checkpoints, up to epoch 1"):
        older.open("history0", SCHEMA.names)

    interrupts: list[Callable[[], Any]] = [lambda: newer.commit(2, [(("c", 1, "x"), 1)]), lake.rewrite]
    zombie = lake.sink()
    zombie.open("history1", SCHEMA.names)
    keys = zombie._keys

    def late(table: Any, asked: Any) -> Any:
        """Return the keys, and have something else change the table before these are used."""
        present = keys(table, asked)
        if interrupts:
            interrupts.pop()()
        return present

    monkeypatch.setattr(zombie, "_keys", late)
    zombie.commit(2, [(("c", 1, "x"), 1)])
    assert not interrupts and lake.rows() == {("a", 1, "x"): 1, ("a", 2, "x"): 1, ("c", 1, "x"): 1}
    for sink in (older, newer, others, zombie):
        sink.close()


def has(lake: Any, rows: Any) -> bool:
    return bool(lake.rows() == rows)


def test_tables_of_timely_serve_follow_and_are_followed(lake: Any, tmp_path: Path) -> None:
    """A served source and sink of one lake: what comes to one table is in the other, and columns are declared in their order."""
    lake.append([("a", 1, "x"), ("b", 2, None)])
    (tmp_path / "copy").mkdir()
    copy = type(lake)(tmp_path / "copy")
    script = f"""create source items (part varchar, n bigint, note varchar) with ({lake.options()});
        create view doubled as select part, 2 * n as n, note from items;
        create sink out from doubled with ({copy.options()}, key = 'part, n');"""
    with Views(data=tmp_path / "data") as views, Connectors(views, seconds=0.02) as connectors:
        views.apply_script(script)
        for expected in ({("a", 2, "x"): 1, ("b", 4, None): 1}, {("a", 2, "x"): 1, ("a", 6, "y"): 1}):
            wait(partial(has, copy, expected), connectors)
            lake.delete(2)
            lake.append([("a", 3, "y")] * (len(lake.rows()) < 2))
        views.run_script(f"create source mixed (n bigint, part varchar, note varchar) with ({lake.options()})")
        wait(
            lambda: "has the columns part, n, note, and mixed is declared with n, part, note" in str(connectors.problems),
            connectors,
        )
