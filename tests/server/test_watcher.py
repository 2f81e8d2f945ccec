"""Tables that follow files and folders: what one file changes, what is refused, and that inputs move together."""

from __future__ import annotations

import datetime
import gzip
import itertools
import json
import os
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import timely
from timely import differential as dd
from timely.errors import ConfigurationError
from timely.server import InputWatcher, Views, WatchedInput


class Watched:
    """Views over inputs; ``look`` does the two rounds after which a file counts as written."""

    def __init__(self, *inputs: WatchedInput, script: str = "") -> None:
        self.views = Views()
        self.watcher = InputWatcher(self.views, inputs)
        self.views.run_script(script)

    def look(self) -> int:
        self.watcher.poll()
        self.watcher.poll()
        return self.views.time

    def rows(self, name: str = "t") -> dict[Any, int]:
        return dict(self.views.read(name).rows)

    @property
    def problems(self) -> list[str]:
        return self.watcher.problems


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_file_that_changes_is_applied_as_its_difference(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "k,n", "a,1", "a,1", "b,2")
    watched = Watched(WatchedInput("t", path), script="create view sums as select k, sum(n) as n from t group by k")
    assert watched.views.time == 0 and watched.rows() == {("a", 1): 2, ("b", 2): 1}
    assert watched.look() == 0
    write(path, "k,n", "a,1", "c,3")
    assert watched.watcher.poll() is False  # it may still be written
    assert watched.watcher.poll() is True
    assert watched.views.time == 1 and watched.rows("sums") == {("a", 1): 1, ("c", 3): 1}
    assert watched.views.changes("t", 0)[0].changes == [(("a", 1), -1), (("b", 2), -1), (("c", 3), 1)]
    write(path, "k,n", "c,3", "a,1")  # the order is none
    assert watched.look() == 1 and watched.problems == []


def test_inputs_move_together(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one.csv", "n", "1"), write(tmp_path / "other.csv", "n", "1")
    watched = Watched(
        WatchedInput("one", one),
        WatchedInput("other", other),
        script="create view pairs as select one.n, other.n as m from one, other",
    )
    assert watched.rows("pairs") == {(1, 1): 1}
    write(one, "n", "2")
    write(other, "n", "2")
    assert watched.look() == 1
    assert [each.changes for each in watched.views.changes("pairs", 0)] == [[((1, 1), -1), ((2, 2), 1)]]


def test_a_folder_has_the_rows_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    write(folder / "a.csv", "n", "1")
    write(folder / "_SUCCESS")
    write(folder / ".b.csv", "broken")
    watched = Watched(WatchedInput("t", folder))
    assert watched.rows() == {(1,): 1}
    write(folder / "b.csv", "n", "1", "2")
    pq.write_table(pa.table({"n": pa.array([7], pa.int32())}), folder / "c.parquet")
    assert watched.look() == 1 and watched.rows() == {(1,): 2, (2,): 1, (7,): 1}
    (folder / "a.csv").unlink()
    write(folder / "b.csv", "n", "2")
    assert watched.look() == 2 and watched.rows() == {(2,): 1, (7,): 1}
    write(folder / "read.me", "n")
    assert watched.look() == 2
    [problem] = watched.problems
    assert "read.me' should end in one of .parquet" in problem
    (folder / "read.me").unlink()
    assert watched.look() == 2 and watched.problems == []
    folder.rename(tmp_path / "elsewhere")
    assert watched.look() == 2 and "its rows stay" in watched.problems[0]
    (tmp_path / "elsewhere").rename(folder)
    assert watched.look() == 2 and watched.problems == [] and watched.rows() == {(2,): 1, (7,): 1}


def test_a_bad_file_is_not_applied_and_blocks_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    good, bad = write(folder / "a.csv", "k,n", "a,1"), folder / "b.csv"
    watched = Watched(WatchedInput("t", folder))
    for lines in (["k,n", "b,2", "c,x"], ["k", "b"], ["k,n,m", "b,2,3"], [], ["k,k", "b,2"]):
        write(bad, *lines)
        write(good, "k,n", "a,1", f"z,{len(lines)}")
        watched.look()
        assert watched.rows() == {("a", 1): 1, ("z", len(lines)): 1}
        assert len(watched.problems) == 1 and "b.csv" in watched.problems[0], lines
    bad.write_bytes(b"k,n\n\xff\xfe,1\n")
    watched.look()
    assert "b.csv" in watched.problems[0]
    write(bad, "k,n", "b,2")
    watched.look()
    assert watched.problems == [] and watched.rows()[("b", 2)] == 1
    write(bad, "k,n", "b,x")
    watched.look()
    assert (
        watched.rows()[("b", 2)] == 1
        and "line 2 has 'x': create table t (..., \"n\" string, ...) in a script" in watched.problems[0]
    )
    bad.unlink()
    watched.look()
    assert ("b", 2) not in watched.rows() and watched.problems == []


def test_a_file_that_is_gone_keeps_its_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "n", "1")
    watched = Watched(WatchedInput("t", path))
    path.unlink()
    assert watched.look() == 0 and watched.rows() == {(1,): 1}
    assert watched.problems == [f"input t: {str(path)!r} is not there: its rows stay"]
    write(path, "n", "2")
    assert watched.look() == 1 and watched.rows() == {(2,): 1} and watched.problems == []


def test_files_of_changes(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    write(folder / "1.csv", "k,n,count", "a,1,2", "b,2,1")
    watched = Watched(WatchedInput("t", folder, changes=True))
    assert watched.rows() == {("a", 1): 2, ("b", 2): 1} and watched.views.describe("t").columns[1].name == "n"
    write(
        folder / "3.jsonl",
        '{"k": "c", "n": 4, "_change_type": "update_preimage"}',
        '{"k": "c", "n": 5, "_change_type": "update_postimage"}',
    )
    assert watched.look() == 0 and "('c', 4) would be there -1 times" in watched.problems[0]
    write(folder / "2.csv", "k,n,_change_type", "c,4,insert", "b,2,delete")
    watched.look()
    assert watched.look() == 2 and watched.rows() == {("a", 1): 2, ("c", 5): 1} and watched.problems == []
    for number, lines in enumerate(
        (["k,n", "c,5"], ["k,n,_change_type", "c,5,upsert"], ["k,n,count", "c,5,1.5"], ["k,n,count", "c,5,"])
    ):
        write(folder / "4.csv", *lines)
        assert watched.look() == 2 and "4.csv" in watched.problems[0], number
    (folder / "4.csv").unlink()
    (folder / "2.csv").unlink()  # what it inserted has been changed since
    assert watched.look() == 2 and "would be there -1 times" in watched.problems[0]


def test_a_folder_that_another_dataflow_writes(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            table = dd.table(scope, pa.schema([("k", pa.string()), ("n", pa.int64())]))
            sums = table.group_by("k").agg("sum(n) as n")
            written = sums.to_batches().write_parquet(folder).probe()
        table.session.insert(("a", 1))
        table.session.advance_to(1)
        worker.step_while(lambda: written.less_than(1))
        watched = Watched(WatchedInput("t", folder, changes=True))
        assert watched.rows() == {("a", 1): 1}
        table.session.insert(("a", 2))
        table.session.insert(("b", 5))
        table.session.close()
        worker.run()
    assert watched.look() == 1 and watched.rows() == {("a", 3): 1, ("b", 5): 1} and watched.problems == []


def test_changes_are_asked_for_in_words(tmp_path: Path) -> None:
    write(tmp_path / "t.csv", "n,_change_type", "1,insert")
    with pytest.raises(ConfigurationError, match="--changes t"):
        WatchedInput("t", tmp_path / "t.csv")
    write(tmp_path / "u.csv", "n,count", "1,7")
    assert Watched(WatchedInput("t", tmp_path / "u.csv")).rows() == {(1, 7): 1}


@pytest.mark.parametrize(
    ("name", "save"),
    [
        ("t.parquet", pq.write_table),
        ("t.arrow", lambda table, path: pa.feather.write_feather(table, str(path), compression="uncompressed")),
        ("t.feather", lambda table, path: pa.feather.write_feather(table, str(path))),
        ("t.csv", pa.csv.write_csv),
        ("t.csv.gz", lambda table, path: path.write_bytes(gzip.compress(b'n,s\n1,x\n,""\n'))),
        ("t.json", lambda table, path: write(path, '{"n": 1, "s": "x"}', '{"s": ""}')),
        ("t.jsonl.gz", lambda table, path: path.write_bytes(gzip.compress(b'{"n": 1, "s": "x"}\n{"s": ""}\n'))),
    ],
)
def test_formats(tmp_path: Path, name: str, save: Callable[[pa.Table, Path], object]) -> None:
    path = tmp_path / name
    save(pa.table({"n": [1, None], "s": ["x", ""]}), path)
    watched = Watched(WatchedInput("t", path))
    assert watched.rows() == {(1, "x"): 1, (None, ""): 1}
    save(pa.table({"n": [1, None], "s": ["x", ""]}), path)
    assert watched.look() == 0 and watched.problems == []


def test_types_that_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table(
        {
            "Name": pa.array(["x"]).dictionary_encode(),
            "half": pa.array([0.5], pa.float32()),
            "at": pa.array([datetime.datetime(2020, 1, 1, 12)], pa.timestamp("ns")),
            "empty": pa.nulls(1),
        }
    )
    pq.write_table(table, path)
    watched = Watched(WatchedInput("t", path))
    assert watched.rows() == {("x", 0.5, datetime.datetime(2020, 1, 1, 12), None): 1}
    pq.write_table(table.set_column(2, "at", pa.array([1], pa.timestamp("ns"))), path)
    assert watched.look() == 0 and "column 'at' is timestamp[ns]" in watched.problems[0]
    pq.write_table(table.set_column(0, "Name", pa.array([7])), path)
    assert watched.look() == 0 and "column 'name' is declared string, and the batch has int64" in watched.problems[0]


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl"])
def test_file_5_lists_and_structs_are_followed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name

    def save(tags: list[Any]) -> None:
        rows = [{"id": 1, "tags": tags, "at": {"x": 1, "more": [{"y": 2}]}}, {"id": 2, "tags": None, "at": None}]
        if name == "t.parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        else:
            write(path, *map(json.dumps, rows))

    save(["a", None])
    script = "create view v as select id, unnest(tags) as tag from t; create view xs as select at.x as x from t"
    watched = Watched(WatchedInput("t", path), script=script)
    assert watched.rows() == {(1, ("a", None), (1, ((2,),))): 1, (2, None, None): 1}
    assert watched.rows("v") == {(1, "a"): 1, (1, None): 1} and watched.rows("xs") == {(1,): 1, (None,): 1}
    save(["b"])
    assert watched.look() == 1 and watched.rows("v") == {(1, "b"): 1} and watched.problems == []


def far_date(path: Path) -> None:
    days = pa.array([0, 10_000_000], pa.int32()).view(pa.date32())
    pq.write_table(pa.table({"k": ["b", "c"], "d": days}), path)


def bad_text(path: Path) -> None:
    texts = pa.array([b"b", b"\xff"]).view(pa.string())
    pq.write_table(pa.table({"k": texts, "d": pa.array([0, 1], pa.int32()).view(pa.date32())}), path)


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "date.parquet": far_date,
    "text.parquet": bad_text,
    "latin.jsonl": lambda path: path.write_bytes('{"k": "é", "d": "2024-01-01"}\n'.encode("latin-1")),
    "latin.csv": lambda path: path.write_bytes("k,d\né,2024-01-01\n".encode("latin-1")),
    "quote.csv": lambda path: path.write_bytes(b'k,d\n"b,2024-01-01\nc,2024-01-01\n'),
    "cut.csv.gz": lambda path: path.write_bytes(gzip.compress(b"k,d\nb,2024-01-01\n")[:-3]),
}


@pytest.mark.parametrize("bad", BAD_FILES)
@pytest.mark.parametrize("there", ["first", "later"])
def test_file_4_a_file_that_is_bad_stops_no_other(tmp_path: Path, bad: str, there: str) -> None:
    """Neither of its folder nor of another input, from the start or later."""
    folder, other = tmp_path / "t", tmp_path / "u.csv"
    folder.mkdir()
    if there == "first":
        BAD_FILES[bad](folder / bad)
    write(folder / "z.csv", "k,d", "a,2024-01-01")
    watched = Watched(WatchedInput("t", folder, "k string, d date"), WatchedInput("u", write(other, "n", "1")))
    if there == "later":
        BAD_FILES[bad](folder / bad)
    write(other, "n", "2")
    watched.look()
    assert watched.rows() == {("a", datetime.date(2024, 1, 1)): 1} and watched.rows("u") == {(2,): 1}
    [problem] = watched.problems
    assert problem.startswith("input t: ") and bad in problem and "inputs are not followed" not in problem
    (folder / bad).unlink()
    watched.look()
    assert watched.problems == []


@pytest.mark.parametrize("between", ["k,n\na,1\nx,9\n", 'k,n\na,1\n""""\n'])
def test_a_file_that_changes_while_it_is_read_is_not_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    """Nor does what is wrong in it then count as a problem of the file."""
    path = write(tmp_path / "t.csv", "k,n", "a,1", "b,2")
    watched = Watched(WatchedInput("t", path))
    size, times = os.path.getsize, itertools.count(1)

    def while_it_is_read(name: Any) -> int:
        if str(name) == str(path):
            path.write_text(between)
            os.utime(path, ns=(0, next(times)))  # the clock of a file system is coarse
        return size(name)

    write(path, "k,n", "a,1", "c,3")
    watched.watcher.poll()
    with monkeypatch.context() as patched:
        patched.setattr(os.path, "getsize", while_it_is_read)
        watched.watcher.poll()
    assert next(times) > 1 and watched.problems == []
    assert watched.rows() == {("a", 1): 1, ("b", 2): 1}
    write(path, "k,n", "a,1", "d,4")
    watched.look()
    assert watched.rows() == {("a", 1): 1, ("d", 4): 1}


def test_text_1_a_schema_may_be_a_text(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "Code,n", "007,1")
    watched = Watched(WatchedInput("t", path, "Code string, n long"))
    assert watched.rows() == {("007", 1): 1}
    watched.views.table("u", "day date, n long", [(datetime.date(2024, 1, 1), 2)])
    assert watched.rows("u") == {(datetime.date(2024, 1, 1), 2): 1}
    for wrong in ("Code whole", "n", 5):
        with pytest.raises(ConfigurationError, match="column"):
            WatchedInput("t", path, wrong)
        with pytest.raises(ConfigurationError, match="table v: .*column"):
            watched.views.table("v", wrong)


def test_a_file_whose_columns_are_not_null(tmp_path: Path) -> None:
    path, schema = tmp_path / "t.parquet", pa.schema([pa.field("n", pa.int64(), nullable=False)])
    pq.write_table(pa.table({"n": [1, 2]}, schema), path)
    watched = Watched(WatchedInput("t", path), script="create view v as select n from t where n not in (select n + 1 from t)")
    assert watched.rows("v") == {(1,): 1} and not watched.views.describe("t").columns[0].nullable
    pq.write_table(pa.table({"n": [2, 4]}), path)
    assert watched.look() == 1 and watched.rows("v") == {(2,): 1, (4,): 1}
    pq.write_table(pa.table({"n": [2, None]}), path)
    assert watched.look() == 1 and "column 'n' is declared not null" in watched.problems[0]


DECLARED = """create table t (code varchar not null, price decimal(9, 2), day date);
create view days as select day, sum(price) as total from t group by day"""


def declared() -> pa.Schema:
    return pa.schema([pa.field("code", pa.string(), nullable=False), ("price", pa.decimal128(9, 2)), ("day", pa.date32())])


@pytest.mark.parametrize(
    "lines",
    [
        ("t.csv", "code,price,day", "007,1.50,2020-01-31", "NA,,"),
        ("t.jsonl", '{"code": "007", "price": "1.50", "day": "2020-01-31"}', '{"code": "NA"}'),
    ],
)
def test_columns_that_a_script_declares(tmp_path: Path, lines: tuple[str, ...]) -> None:
    path = write(tmp_path / lines[0], *lines[1:])
    watched = Watched(WatchedInput("t", path, declared()), script=DECLARED)
    day = datetime.date(2020, 1, 31)
    assert watched.rows() == {("007", Decimal("1.50"), day): 1, ("NA", None, None): 1}
    assert watched.rows("days") == {(day, Decimal("1.50")): 1, (None, None): 1}
    write(path, *lines[1:2], '{"price": "1"}' if "json" in lines[0] else ",1,")
    assert watched.look() == 0 and "column 'code' is declared not null, and has nulls" in watched.problems[0]


def test_a_code_in_a_column_of_numbers_is_not_applied(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "zip,n", "10115,1")
    watched = Watched(WatchedInput("t", path))
    write(path, "zip,n", "10115,1", "01067,2")
    assert watched.look() == 0 and watched.rows() == {(10115, 1): 1}
    assert "column 'zip' of " in watched.problems[0] and 'create table t (..., "zip" string, ...)' in watched.problems[0]
    assert Watched(WatchedInput("t", path)).rows() == {("10115", 1): 1, ("01067", 2): 1}
    numbers = pa.schema([("zip", pa.int64()), ("n", pa.int64())])
    assert Watched(WatchedInput("t", path, numbers)).rows() == {(10115, 1): 1, (1067, 2): 1}


TEXTS: dict[str, tuple[bytes, dict[str, Any], object]] = {
    "semicolons": (b"k;n\na;1\n", {}, {("a", 1): 1}),
    "tabs": (b"k\tn\na\t1\n", {}, {("a", 1): 1}),
    "another separator": (b"k:n\na:1\n", {"delimiter": ":"}, {("a", 1): 1}),
    "as Windows has it": (
        b'\xef\xbb\xbfk,n\r\n"a, ""b""",\r\n\r\n',
        {},
        {('a, "b"', None): 1},
    ),
    "Latin-1": ("k,n\nKöln,1\n".encode("latin-1"), {"encoding": "latin-1"}, {("Köln", 1): 1}),
    "another encoding": ("k,n\nKöln,1\n".encode("latin-1"), {}, "line 2 is not of .* or --encoding latin-1 may read it"),
    "a decimal comma": (b"k;n\na;1,5\n", {"decimal": ","}, {("a", 1.5): 1}),
    "no decimal comma": (b"k;n\na;1,5\n", {}, "n is text; it looks like numbers as in '1,5': --decimal ,"),
    "thousands": (b'k,n\na,"1,500"\nb,"20"\n', {}, r"'1,500': replace\(n, ',', ''\)::double in a view, or --decimal , where"),
    "more thousands": (b'k,n\na,"1,500"\nb,"20.5"\n', {}, r"as in '1,500': replace\(n, ',', ''\)::double in a view$"),
    "points": (b"k,N\na,1.500\nb,20\n", {}, r"column n has 1.500 as 1.5; if points separate thousands, --decimal , and replace"),
    "decimals": (b"k,n,m\na,1.500,1.5\nb,0.250,\n", {}, {("a", 1.5, 1.5): 1, ("b", 0.25, None): 1}),
    "codes": (b"k,n\na,01067\nb,10115\nc,12345678901234567890\nd,n/a\n", {}, r"^$"),
    "units": (b"k,n\na,1\nb,2\nc,3 kg\nd,n/a\n", {}, r"^$"),
    "shares and prices": (b"n,m\n10%,$7\n3,8\n", {}, r"'10%': regexp_replace\(n, [^$]*'\$7': regexp_replace\(m, "),
    "German thousands": (b"k;N n\na;1.500,5\n", {}, r"replace\(replace\(\"n n\", '.', ''\), ',', '.'\)::double"),
    "German dates": (b"k,n\na,31.12.2025\n", {}, r"dates as in '31.12.2025': strptime\(n, '%d.%m.%Y'\)::date in a view"),
    "American dates": (b"k,n\na,12/31/2025\n", {}, r"strptime\(n, '%m/%d/%Y'\)::date in a view"),
    "missing values": (b"k,n\na,1\nb,N/A\n", {}, "numbers but for 'N/A': --null N/A reads it as missing"),
    "given missing values": (b"k,n\na,1\nb,N/A\n", {"null_values": ("", "N/A")}, {("a", 1): 1, ("b", None): 1}),
    "a header alone": (b"k,n\n", {}, r"no rows yet, so its columns are texts; create table t \(column type"),
    "no header": (b"", {}, "its first line, with the names of the columns, is missing"),
    "two of a name": (b"k,n,n\na,1,2\n", {}, "two columns are called 'n': rename one"),
    "more values than names": (
        b"k,n\na,1,5\n",
        {},
        "line 2 has 3 values, and the header 2: .*; a value with ',' in it needs",
    ),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", {}, "it is no text: is it another file"),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_csv_as_people_have_it_is_read_or_its_error_says_how_to(kind: str, tmp_path: Path) -> None:
    content, options, result = TEXTS[kind]
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    try:
        watched = WatchedInput("t", path, **options)
    except ConfigurationError as error:
        assert re.search(str(result), str(error)) and "views.sql" not in str(error), error
        return
    rows, notes = Watched(watched).rows(), "\n".join(watched.notes)
    assert rows == result and "column" not in notes if isinstance(result, dict) else re.search(str(result), notes), (rows, notes)


def test_names_of_columns_are_any_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "Order ID,amount (eur)", "7,1.5", "8,2")
    script = 'create table t ("Order ID" bigint, "amount (eur)" double); create view v as select "order id" + 1 as "a.b" from t'
    columns = pa.schema([("order id", pa.int64()), ("amount (eur)", pa.float64())])
    for schema in (None, columns):
        watched = Watched(WatchedInput("t", path, schema), script=script)
        assert watched.rows() == {(7, 1.5): 1, (8, 2.0): 1} and watched.rows("v") == {(8,): 1, (9,): 1}


def test_an_input_that_is_not_there_yet(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no file .*; where files come later, create table t"):
        WatchedInput("t", tmp_path / "t.csv")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigurationError, match="the folder .* has no files"):
        WatchedInput("t", tmp_path / "folder")
    watched = Watched(WatchedInput("t", tmp_path / "t.csv", declared()), script=DECLARED)
    assert watched.look() == 0 and watched.rows() == {}
    write(tmp_path / "t.csv", "day,code,price", "2020-01-31,x,1")
    assert watched.look() == 1 and len(watched.rows("days")) == 1


def schema_of(script: str) -> pa.Schema:
    views = Views()
    views.run_script(script)
    return views.catalog.definitions["t"].schema


def test_rows_of_files_that_came_too_late_are_counted_once(tmp_path: Path) -> None:
    path, schema = write(tmp_path / "t.csv", "at", "20"), schema_of("create table t (at bigint lateness 5)")
    for start in range(3):
        with Views(data=tmp_path / "data") as views:
            watcher = InputWatcher(views, [WatchedInput("t", path, schema)])
            for lines in (("2", "20", "30"), ("2", "30")) if not start else ():
                write(path, "at", *lines)
                assert (watcher.poll(), watcher.poll()) == (False, True)
            assert watcher.poll() is False and views.late == {"t": 2}
            assert (views.read("t").rows, views.read("t_late").rows) == ([((20,), 1), ((30,), 1)], [((2, 1), 1), ((20, -1), 1)])


def test_a_table_that_follows_files_is_not_append_only(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match="input t follows files, whose rows may go: declare the table without APPEND ONLY"
    ):
        WatchedInput("t", tmp_path / "t.csv", schema_of("create table t (n bigint) append only"))


def test_a_bad_file_at_the_start(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "code,price,day", "x,y,z")
    with pytest.raises(ConfigurationError, match="input u has no columns: .*t.json"):
        WatchedInput("u", write(tmp_path / "t.json", "{"))
    watched = Watched(WatchedInput("t", path, declared()), script=DECLARED)
    assert watched.rows() == {} and "'y' is not a valid decimal" in watched.problems[0]


def test_rows_that_clients_wrote_stay(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "n", "1", "2")
    watched = Watched(WatchedInput("t", path))
    watched.views.write("t", insert=[(9,)], delete=[(1,)])
    write(path, "n", "1", "2", "3")
    assert watched.look() == 2 and watched.rows() == {(2,): 1, (3,): 1, (9,): 1}
    write(path, "n", "2", "3")  # takes away what a client has taken away
    assert watched.look() == 2 and "(1,) would be there -1 times" in watched.problems[0]


DOCS = Path(__file__).resolve().parents[2] / "docs"
GIVEN = re.compile(r"`(\w+\.(?:csv|sql))`:\n\n```(?:csv|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "line", "view", "before", "after"),
    [
        ("csv_to_view.md", "1,ada,", "visits", [("ada", 3), ("bob", 2)], [("ada", 1), ("ada", 1), ("bob", 2)]),
        ("serve.md", "news,", "reached", [("home",), ("news",), ("sports",)], [("home",), ("news",)]),
        ("serve.md", "games,", "lost", [("chess",)], []),
    ],
)
def test_a_script_follows_its_file(
    page: str, line: str, view: str, before: list[tuple[str, ...]], after: list[tuple[str, ...]], tmp_path: Path
) -> None:
    files = dict(GIVEN.findall((DOCS / page).read_text(encoding="utf-8")))
    (script,) = (text for name, text in files.items() if name.endswith(".sql"))
    (name,) = (name for name in files if name.endswith(".csv"))
    path = tmp_path / name
    path.write_text(files[name])
    views = Views()
    watcher = InputWatcher(views, [WatchedInput(path.stem, path)])
    views.run_script(script)

    def held() -> list[tuple[str, ...]]:
        return sorted(row if len(row) == 1 else (row[0], row[-1]) for row, _ in views.read(view).rows)

    assert held() == before
    path.write_text("".join(each for each in files[name].splitlines(keepends=True) if not each.startswith(line)))
    assert [watcher.poll(), watcher.poll()] == [False, True] and watcher.problems == []
    assert held() == after
