"""Files of strangers: their rows, or a ``TimelyError`` with the file, the place in it and the column."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import timely
from timely import differential as dd
from timely.errors import ConfigurationError, SchemaError, TimelyError
from timely.server import WatchedInput

pa: Any = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")

READ = {".parquet": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv", ".jsonl": "read_json", ".arrow": "read_ipc"}


def rows_of(path: Path, **options: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a file, sorted; raises the library's error, whether the build or the run ends in it."""
    read = READ[Path(path.stem).suffix if path.suffix == ".gz" else path.suffix]
    try:
        with timely.Worker() as worker:
            with worker.dataflow(int) as scope:
                captured = getattr(scope, read)(path, **options).capture()
            worker.run()
        return [row for _, rows in captured.extract() for row in rows]
    except timely.OperatorError as error:
        assert isinstance(error.__cause__, TimelyError), error.__cause__
        raise error.__cause__ from None


def refused(path: Path, **options: Any) -> str:
    """Return what is said of a file that is refused, which names it."""
    with pytest.raises((SchemaError, ConfigurationError)) as caught:
        rows_of(path, **options)
    assert str(path) in str(caught.value)
    return str(caught.value)


# -- quotes --------------------------------------------------------------------------------------------------------------


def oracle(text: str) -> list[list[str]] | None:
    """Return what Python's ``csv`` reads, without empty lines; ``None`` for what it refuses, and for rows of other widths."""
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        return None
    return rows if all(len(row) == 2 for row in rows) else None


@hypothesis.settings(max_examples=300)
@hypothesis.given(body=st.text('",\n\rab', max_size=24), ends=st.booleans())
@hypothesis.example(body='a""",""\n', ends=True)
@hypothesis.example(body='"""",b', ends=False)
def test_file_1_quotes_are_those_of_csv(body: str, ends: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    text = "x,y\n" + body + ("\n" if ends else "")
    path.write_text(text, newline="")
    expected = oracle(text)
    if expected is None:
        refused(path, schema="x string, y string")
    else:
        rows = rows_of(path, schema="x string, y string", null_values=["-"])
        assert rows == sorted(map(tuple, expected[1:]))


@pytest.mark.parametrize("shift", range(-4, 4))
@pytest.mark.parametrize("row", ['"a""b",c\n', '"a"b,c\n', 'a"b,"c"\n', '"a,c\n', '"\n\n""\r\n",""\n'])
def test_file_1_where_a_block_ends(tmp_path: Path, row: str, shift: int) -> None:
    """Where the text is read in blocks of a megabyte."""
    path = tmp_path / "a.csv"
    filler = f'x,"{"y" * 100_000}"\n'
    text = "x,y\n" + filler * 10
    text += f'"{"-" * ((1 << 20) - len(text) - 5 + shift)}",y\n' + row + filler * 3
    path.write_text(text, newline="")
    expected = oracle(text)
    if expected is None:
        message = refused(path, schema="x string, y string")
        assert f"begins in line {text[: text.index(row)].count(chr(10)) + 1} " in message
    else:
        assert rows_of(path, schema="x string, y string", null_values=["-"]) == sorted(map(tuple, expected[1:]))


# -- text ----------------------------------------------------------------------------------------------------------------

MANY = "1,a\n" * 300_000
"""More than Arrow infers types from."""

LATIN = "id,name\n1,ok\n2,café\n".encode("latin-1")

READS: dict[str, tuple[bytes, dict[str, Any], list[tuple[Any, ...]]]] = {
    "UTF-8 with a mark": ("\ufeffid,name\n1,é\n".encode(), {}, [(1, "é")]),
    "a mark before a quote": ('\ufeff"id","na,me"\n1,é\n'.encode(), {}, [(1, "é")]),
    "UTF-16": ("id,name\n1,é\n".encode("utf-16"), {"encoding": "utf-16"}, [(1, "é")]),
    "file-2 with encoding=": (LATIN, {"encoding": "latin-1"}, [(1, "ok"), (2, "café")]),
    "file-2 as bytes": (LATIN, {"schema": {"name": "binary"}}, [(1, b"ok"), (2, b"caf\xe9")]),
    "file-2 where it is not read": (LATIN, {"columns": ["id"]}, [(1,), (2,)]),
    "returns and line feeds": (b"id,name\r\n1,a\r\n\r\n2,b\r", {}, [(1, "a"), (2, "b")]),
    "no name": (b",name\n1,a\n", {}, [(1, "a")]),
    "names only": (b"id,name\n", {}, []),
    "NUL": (b"id,name\n1,a\0b\n", {}, [(1, "a\0b")]),
    "numbers in hexadecimal": (b"id,name\n0x10,a\n", {}, [("0x10", "a")]),
    "quotes that are characters": (b'id\tname\n1\t"a\n2\t"b" c\n', {"delimiter": "\t", "quote": None}, [(1, '"a'), (2, '"b" c')]),
    "other quotes": (b"id,name\n1,'a,''b\"'\n", {"quote": "'"}, [(1, "a,'b\"")]),
}

NO_QUOTE = "".join(f"{n},name{n}\n" for n in range(1000)).replace("2,name2\n", '2,"name2\n', 1)

REFUSED: dict[str, tuple[str, bytes, dict[str, Any], str]] = {
    "file-1": (".csv", f"id,name\n{NO_QUOTE}".encode(), {}, "quoted value that begins in line 4 is not closed"),
    "a quote that closes late": (".csv", b'a,b\n1,"x\n2,y\n3,"z"\n', {}, "in line 2 is closed in line 4, and 'z\"' follows"),
    "a quote in the names": (".csv", b'id,"name\n1,a\n2,b\n', {}, "begins in line 1 is not closed"),
    "a backslash": (".csv", b'id,name\n1,"a\\"b"\n', {}, "in line 2, and 'b\"' follows: write a quote in a value twice"),
    "file-2": (".csv", LATIN, {}, r"column 'name' of line 3 is not of .*: b'caf\\xe9'; .*, or encoding='latin-1' may"),
    "file-2 with schema=": (".csv", LATIN, {"schema": "id long, name string"}, "'name' of line 3 .* encoding='latin-1' may"),
    "file-2 in the names": (".csv", "id,é\n1,a\n".encode("latin-1"), {}, "line 1 is not of the encoding utf-8"),
    "file-2 late": (".csv", f"id,name\n{MANY}2,é\n".encode("latin-1"), {}, "column 'name' of line 300002 is not"),
    "a byte of none": (".csv", b"id,name\n1,a\x81\n", {"encoding": "cp1252"}, r"line 2 is not of the encoding cp1252: b'a\\x81'"),
    "UTF-16": (".csv", "id,name\n1,a\n".encode("utf-16"), {}, "it is UTF-16: encoding='utf-16' may read it"),
    "UTF-16 without a mark": (".csv", "id,name\n1,a\n".encode("utf-16-le"), {}, "NUL bytes, as UTF-16 has: encoding='utf-16-le'"),
    "UTF-16 that is cut": (".csv", "id,name\n1,a\n".encode("utf-16")[:-1], {"encoding": "utf-16"}, "truncated data"),
    "gzip without the name": (".csv", gzip.compress(b"id,name\n1,a\n"), {}, "compressed by gzip: its name should end in .gz"),
    "gzip with the name alone": (".csv.gz", b"id,name\n1,a\n", {}, "incorrect header check"),
    "gzip that is cut": (".csv.gz", gzip.compress(f"id,name\n{MANY}".encode())[:-9], {}, "Truncated compressed stream"),
    "Parquet": (".csv", b"PAR1\x15\x04\x15\x20", {}, "it is a file of Parquet"),
    "a workbook": (".csv", b"PK\x03\x04\x14\0\x06\0", {}, "a zip archive or a workbook: export it as CSV"),
    "a row too short": (".csv", b'id,name\n\n1,"a\nb"\n2\n', {}, "line 5 has 1 value, and the header 2: 2"),
    "a row too long": (".csv", b"id,name\n1,a\n2,b,c\n", {}, "line 3 has 3 values, and the header 2: 2,b,c"),
    "NUL bytes at the end": (".csv", b"id,name\n1,a\n" + bytes(9), {}, "line 3 has 1 value"),
    "a row of megabytes": (".csv", b"id,name\n1," + b"a" * 3_000_000 + b"\n", {}, "a row has more than a megabyte"),
    "a name twice": (".csv", b"id,id\n1,2\n", {}, "two columns are called .id."),
    "no name twice": (".csv", b",\n1,2\n", {}, "two columns are called"),
    "no names": (".csv", b"\n\n", {}, "its first line, with the names of the columns, is missing or does not end"),
    "a date before 1": (".csv", b"id,day\n1,0000-01-01\n", {}, "rows 1 to 1: column 'day' .*0000-01-01.*'string'} reads"),
    "a number too large later": (".csv", f"id,name\n{MANY}{2**64},a\n".encode(), {}, f"int64, and line 300002 has '{2**64}'"),
    "a number beyond a double": (".csv", b"n\ninf\n1e308\n-1e309\n", {}, "has '-1e309', which is beyond a double: schema"),
    "one beyond a float": (".csv", b"n\n1;5\n1e39\n", {"schema": "n float", "decimal": ";"}, "'1e39', which is beyond a float"),
    "hexadecimal later": (".csv", f"id,name\n{MANY}0x1F,a\n".encode(), {}, "column 'id' of .* has '0x1F', where earlier"),
    "a long delimiter": (".csv", b"id\n1\n", {"delimiter": ", "}, "delimiter= is one ASCII character, not ', '"),
    "no delimiter": (".csv", b"id\n1\n", {"delimiter": ""}, "delimiter= is one ASCII character, not ''"),
    "a delimiter that quotes": (".csv", b"id\n1\n", {"delimiter": '"'}, "delimiter= and quote= are both"),
    "one text of no value": (".csv", b"id\n1\n", {"null_values": "NA"}, "null_values= is a list of texts, not 'NA'"),
    "an unknown encoding": (".csv", b"id\n1\n", {"encoding": "latin-99"}, "encoding= is a name of Python's.*latin-99"),
    "an encoding of no text": (".csv", b"id\n1\n", {"encoding": "base64"}, "encoding= .*base64"),
    "file-3: JSON in Latin-1": (".jsonl", b'{"a": "x"}\n{"a": "\xe9"}\n', {}, r"line 2 is not of the encoding utf-8: b'.*\\xe9"),
    "JSON in UTF-16": (".jsonl", '{"a": 1}\n'.encode("utf-16"), {}, "it is UTF-16: encoding='utf-16' may read it"),
    "null first": (".jsonl", b' null\n{"a": 1}\n', {}, "line 1 is no JSON object"),
    "null first, and a schema": (".jsonl", b'\xef\xbb\xbfnull\n{"a": 1}\n', {"schema": "a long"}, "line 1 is no JSON object"),
    "null later": (".jsonl", b'{"a": 1}\r\n null\r\n', {}, "line 2 is no JSON object"),
    "a list": (".jsonl", b'[{"a": 1},\n{"a": 2}]\n', {}, "line 1 is no JSON object, and each line should be one"),
    "no object": (".jsonl", b"\n\n", {}, "has no object with a field"),
    "another type": (".jsonl", b'{"a": 1}\n{"a": "x"}\n', {}, r"line 2: Column\(/a\) changed .* schema=\{'a': 'type'\} declares"),
    "another type later": (".jsonl", b'{"a": 1}\n' * 200_000 + b'{"a": 1.5}\n', {}, "line 200001, column 'a': .*parse:1.5"),
    "a number too large": (".jsonl", b'{"a": 1, "b": 300}\n', {"schema": "a long, b byte"}, "line 1, column 'b': .*parse:300"),
    "a date that is none": (".jsonl", b'{"a": "2024-02-30"}\n', {"schema": "a date"}, "line 1, column 'a': .*'2024-02-30'"),
    "half of a pair": (".jsonl", b'{"a": 1}\n{"a": "\\ud800"}\n', {}, "line 2: The surrogate pair"),
    "an object that is cut": (".jsonl", b'{"a": 1}\n{"a": ', {}, "line 2, column 'a': Invalid value"),
    "a name twice in an object": (".jsonl", b'{"a": 1}\n{"a": 1, "a": 2}\n', {}, r"line 2: Column\(/a\) was specified twice"),
}  # fmt: skip


@pytest.mark.parametrize("case", READS)
def test_files_of_text_that_are_read(tmp_path: Path, case: str) -> None:
    data, options, rows = READS[case]
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    assert rows_of(path, **options) == rows


@pytest.mark.parametrize("case", REFUSED)
def test_files_of_text_that_are_refused(tmp_path: Path, case: str) -> None:
    extension, data, options, message = REFUSED[case]
    path = tmp_path / f"a{extension}"
    path.write_bytes(data)
    assert re.search(message, text := refused(path, **options)), text


# -- values of Arrow -----------------------------------------------------------------------------------------------------


def whole_numbers(numbers: list[int], kind: Any) -> Any:
    """Return an array of dates, times or the like of what Arrow stores for them."""
    return pa.array(numbers, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def texts(*values: bytes) -> Any:
    return pa.array(values).view(pa.string())


DATE = whole_numbers([0, 10_000_000], pa.date32())
DATES = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), DATE)
DECIMAL = pa.Array.from_buffers(pa.decimal128(3), 2, [None, pa.py_buffer(b"".join(n.to_bytes(16, "little") for n in (1, 5000)))])

ODD_VALUES: dict[str, tuple[Any, str]] = {
    "file-3: a date beyond 9999": (DATE, r"is date32\[day\], and no row has 29349-01-26"),
    "a date before 1": (whole_numbers([-1_000_000, 0], pa.date32()), "and no row has -0768-02-04"),
    "a timestamp beyond 9999": (whole_numbers([0, 2**60], pa.timestamp("us")), "and no row has"),
    "a timestamp beyond 9999 in its zone": (whole_numbers([253402300799000000], pa.timestamp("us", "Asia/Tokyo")), "no row has"),
    "a zone that is none": (whole_numbers([0, 1], pa.timestamp("us", "Europe/Berlln")), "Europe/Berlln"),
    "a time of the next day": (whole_numbers([0, 86_400_000_000], pa.time64("us")), "86400000000"),
    "a time of nanoseconds": (whole_numbers([0, 1], pa.time64("ns")), "lose data"),
    "a duration of ages": (whole_numbers([0, 2**62], pa.duration("s")), "and no row has 4611686018427387904"),
    "file-3: bytes that are no text": (texts(b"a", b"\xff"), "(?i)invalid utf8"),
    "bytes of few values": (pa.DictionaryArray.from_arrays(pa.array([0, 1]), texts(b"a", b"\xff")), "(?i)invalid utf8"),
    "file-3: a decimal that does not fit": (DECIMAL, "does not fit in precision"),
    "in a list": (DATES, "29349-01-26"),
    "in a struct": (pa.StructArray.from_arrays([DATES], ["d"]), "29349-01-26"),
    "in a map": (pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array([1, 2]), DATE), "29349-01-26"),
    "in a dictionary": (pa.DictionaryArray.from_arrays(pa.array([0, 1]), DATE), "29349-01-26"),
}  # fmt: skip


@pytest.mark.parametrize("extension", [".parquet", ".arrow"])
@pytest.mark.parametrize("case", ODD_VALUES)
def test_file_3_values_that_no_row_can_have_are_refused(tmp_path: Path, case: str, extension: str) -> None:
    column, message = ODD_VALUES[case]
    path, table = tmp_path / f"a{extension}", pa.table({"id": range(len(column)), "odd": column})
    if extension == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    assert re.search(message, text := refused(path)), text
    assert "column 'odd'" in text and rows_of(path, columns=["id"]) == [(n,) for n in range(len(column))]


@pytest.mark.parametrize("case", ODD_VALUES)
def test_file_3_nor_can_data_in_memory(case: str) -> None:
    column, message = ODD_VALUES[case]
    with timely.Worker() as worker, pytest.raises((timely.OperatorError, SchemaError), match=message):
        with worker.dataflow(int) as scope:
            scope.read_arrow(pa.table({"odd": column})).probe()
        worker.run()
    with timely.Worker() as worker, pytest.raises(SchemaError, match=message), worker.dataflow(int) as scope:
        dd.table(scope, pa.table({"odd": column}))
    table = pa.table({"odd": column})
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            session, _ = dd.from_columns(scope, table.schema)
        with pytest.raises(SchemaError, match=message):
            session.insert_columns(table)
        session.close()
        worker.run()


def test_file_6_types_of_parquet_that_would_be_bytes_are_refused(tmp_path: Path) -> None:
    duckdb: Any = pytest.importorskip("duckdb")
    path = tmp_path / "a.parquet"
    duckdb.sql(
        f"copy (select 1 as id, uuid() as u, [uuid()] as l, {{'a': uuid(), 'b': 1}} as s, interval 1 month as i) to '{path}'"
    )
    for name, kind in {"u": "UUID", "l": "UUID", "s": "UUID", "i": "INTERVAL"}.items():
        message = refused(path, columns=["id", name])
        assert f"column {name!r} of" in message and f"is {kind}, which would be read as bytes: write it as a string" in message
    assert rows_of(path, columns=["id"]) == [(1,)]
    [(one, unique)] = rows_of(path, columns=["id", "u"], schema={"u": "binary"})
    assert one == 1 and len(unique) == 16
    with pytest.raises(ConfigurationError, match=r"input t has no columns: .*column 'u' of '.*a.parquet' is UUID"):
        WatchedInput("t", path)
    pa.parquet.write_table(pa.table({"u": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([unique], pa.binary(16)))}), path)
    assert rows_of(path) == [(uuid.UUID(bytes=unique),)]
    with pytest.raises(SchemaError, match="a UUID to string"), timely.Worker() as worker, worker.dataflow(int) as scope:
        dd.read_table(scope, path)


@pytest.mark.parametrize("compression", ["none", "zstd", "gzip"])
def test_a_damaged_page_of_parquet_is_refused_with_its_row_group(tmp_path: Path, compression: str) -> None:
    """Files that ``write_parquet`` writes have checksums."""
    table = pa.table({"id": range(400), "name": [f"name {n}" for n in range(400)]})
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            scope.read_arrow(table).write_parquet(tmp_path / "out")
        worker.run()
    [ours] = (tmp_path / "out").rglob("*.parquet")
    pa.parquet.write_table(table, tmp_path / "a.parquet", compression=compression, row_group_size=100, write_page_checksum=True)
    for path, group in ((tmp_path / "a.parquet", 3), (ours, 1)):
        column = pa.parquet.read_metadata(path).row_group(group - 1).column(1)
        end = (column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size
        data = bytearray(path.read_bytes())
        data[end - 20] ^= 255
        path.write_bytes(data)
        assert f"row group {group}, column 'name': " in refused(path)


# -- damage of any kind --------------------------------------------------------------------------------------------------


def records(count: int) -> list[dict[str, Any]]:
    return [
        {"id": n, "name": f"name {n}", "size": n / 4, "tags": ["a", None, "é"][: n % 4], "at": {"x": n}} for n in range(count)
    ]


def write_csv(path: Path) -> None:
    rows = [[str(n), ["plain", 'with "quotes"', "two\nlines", "é, or more", ""][n % 5], str(n / 4)] for n in range(40)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "name", "size"], *rows])


def write_json(path: Path) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in records(40)))


def compressed(write: Callable[[Path], None]) -> Callable[[Path], None]:
    def write_compressed(path: Path) -> None:
        write(path)
        path.write_bytes(gzip.compress(path.read_bytes()))

    return write_compressed


def write_parquet(path: Path) -> None:
    pa.parquet.write_table(pa.Table.from_pylist(records(40)), path, row_group_size=15, write_page_checksum=True)


def write_ipc(path: Path) -> None:
    table = pa.Table.from_pylist(records(40))
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
        file.write_table(table, max_chunksize=15)


def csv_rows(data: bytes) -> list[tuple[Any, ...]] | None:
    """Return what Python reads of CSV of three columns of text, and ``None`` for what it refuses."""
    try:
        text = data.decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except (UnicodeError, csv.Error):
        return None
    return [tuple(row) for row in rows[1:]] if rows and rows[0] == ["id", "name", "size"] and {3} >= set(map(len, rows)) else None


def json_rows(data: bytes) -> list[tuple[Any, ...]] | None:
    """Return what Python reads of JSON objects one after the other."""
    rows, decoder, place = [], json.JSONDecoder(), 0
    try:
        text = data.decode("utf-8-sig")
        while place < len(text):
            row, place = decoder.raw_decode(text, place)
            size = row.get("size")
            rows.append((row.get("id"), row.get("name"), float(size) if type(size) is int else size))
            place += len(text[place:]) - len(text[place:].lstrip())
    except (ValueError, AttributeError):
        return None
    return rows


TEXTS = {"schema": "id string, name string, size string", "null_values": ["no value"]}
FIELDS = {"schema": "id long, name string, size double"}

DAMAGED: dict[str, tuple[Callable[[Path], None], dict[str, Any], Callable[[bytes], list[tuple[Any, ...]] | None] | None]] = {
    "a.csv": (write_csv, TEXTS, csv_rows),
    "b.csv": (write_csv, {}, None),
    "a.csv.gz": (compressed(write_csv), TEXTS, lambda data: csv_rows(gzip.decompress(data))),
    "a.jsonl": (write_json, FIELDS, json_rows),
    "b.jsonl": (write_json, {}, None),
    "a.jsonl.gz": (compressed(write_json), FIELDS, lambda data: json_rows(gzip.decompress(data))),
    "a.parquet": (write_parquet, {}, lambda data: [tuple(row.values()) for row in records(40)]),
    "a.arrow": (write_ipc, {}, None),
}


def check_damaged_files(path: Path, source: random.Random) -> int:
    """Change some bytes of a file, and read it: it has the rows that the oracle reads, or is refused. Return whether it was."""
    write, options, oracle_of = DAMAGED[path.name]
    write(path)
    data = bytearray(path.read_bytes())
    for _ in range(source.randrange(1, 4)):
        place = source.randrange(len(data))
        kind = source.randrange(4)
        if kind == 0:
            del data[place : place + source.choice([1, 1, 20, len(data)])]
        elif kind == 1:
            data[place:place] = source.choice([b'"', b",", b"\n", b"\r", b"\0", b"null", b"{", b"\xff", b"\xc3", b"00", b"}\n{"])
        else:
            data[place : place + 1] = bytes([source.choice([0, 10, 34, 44, 127, 128, 255, source.randrange(256)])])
        if not data:
            break
    path.write_bytes(data)
    try:
        rows = rows_of(path, **options)
    except TimelyError as error:
        assert path.name in str(error)
        return 1
    if oracle_of is not None:
        expected = oracle_of(bytes(data))
        assert expected is not None, (data, rows)
        assert sorted(map(repr, rows)) == sorted(map(repr, expected)), data
    return 0


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_has_its_rows_or_is_refused(tmp_path: Path, name: str) -> None:
    source = random.Random(1)
    assert sum(check_damaged_files(tmp_path / name, source) for _ in range(60)) > 5


@pytest.mark.soak
@pytest.mark.parametrize("name", DAMAGED)
def test_very_many_damaged_files_have_their_rows_or_are_refused(tmp_path: Path, name: str) -> None:
    source = random.Random()
    for _ in range(3_000):
        check_damaged_files(tmp_path / name, source)
