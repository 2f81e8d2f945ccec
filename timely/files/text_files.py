"""Files of CSV, of JSON by the line, and other text: as UTF-8, where one is broken, and what its values say of their columns.

Codes such as ``01067`` are texts. Errors name the line, the value and a remedy. Arrow's dataset of JSON leaves out fields that do
not occur in the first block of a file, and its parser ends the process at some inputs, so lines are divided and checked here.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from timely.errors import brief

_CHUNK: Final = 1 << 20
_NO_TEXT: Final = re.compile("[\udc80-\udcff]")
"""What bytes that cannot be decoded become."""

_BEGINNINGS: Final = {
    b"\x1f\x8b": ("it is compressed by gzip: its name should end in .gz", None),
    b"PAR1": ("it is a file of Parquet", None),
    b"ARROW1": ("it is a file of Arrow IPC", None),
    b"PK\x03\x04": ("it is a zip archive or a workbook: export it as CSV", None),
    b"\xff\xfe\0\0": ("it is UTF-32", "utf-32"),
    b"\xff\xfe": ("it is UTF-16", "utf-16"),
    b"\xfe\xff": ("it is UTF-16", "utf-16"),
}

_BINARY: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Bytes of no text."""


class TextFormat(NamedTuple):
    """How the values of a file of CSV are written."""

    delimiter: str
    quote: str | None = '"'
    encoding: str | None = None


def chunks(path: str, encoding: str | None) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed, as UTF-8; ``UnicodeError`` where they are not of ``encoding``."""
    raw = pa.input_stream(path, compression="detect")
    with raw if encoding is None else pa.transcoding_input_stream(raw, encoding, "utf8") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def lines_of(path: str, encoding: str | None) -> Iterator[str]:
    """Yield the lines of a file with their ends; bytes that cannot be decoded are lone surrogates."""
    with pa.input_stream(path, compression="detect") as file:
        yield from io.TextIOWrapper(file, encoding or "utf-8-sig", errors="surrogateescape", newline="")


def other_format(path: str) -> tuple[str, str | None] | None:
    """Return what a file is that begins as no file of UTF-8 does, and the encoding that may read it."""
    with open(path, "rb") as file:
        beginning = file.read(1024)
    kinds = (what for bytes_, what in _BEGINNINGS.items() if beginning.startswith(bytes_))
    wide = 0 < len(beginning) < 4 * beginning[1::2].count(0)
    binary = ("it is no text: is it another file?", None) if _BINARY.search(beginning[:12]) else None
    return next(kinds, ("it has NUL bytes, as UTF-16 has", "utf-16-le") if wide else binary)


def _rows(lines: Iterable[str], how: TextFormat) -> Any:
    """Return what Python's ``csv`` reads of lines, with the number of the line as ``line_num``."""
    if how.quote is None:
        return csv.reader(lines, delimiter=how.delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=how.delimiter, quotechar=how.quote)


def _first_row(lines: Iterable[str], how: TextFormat) -> list[str]:
    """Return the first row that is not empty, as far as it can be read."""
    with contextlib.suppress(csv.Error):
        return next((list(values) for values in _rows(lines, how) if values), [])
    return []


def header(path: str, how: TextFormat) -> list[str]:
    """Return the names of the columns of CSV, as far as they can be read."""
    return _first_row(lines_of(path, how.encoding), how)


def no_text(path: str, how: TextFormat, columns: Sequence[str] = ()) -> str | None:
    """Return what is wrong with the first line that is not of the encoding; ``columns`` name the values of CSV."""
    encoding = how.encoding or "utf-8"
    for number, line in enumerate(lines_of(path, how.encoding), 1):
        if line.isascii() or not _NO_TEXT.search(line):
            continue
        where, what = f"line {number}", line
        for name, value in zip(columns, _first_row([line], how)):
            if _NO_TEXT.search(value):
                where, what = f"column {name!r} of line {number}", value
        return f"{where} is not of the encoding {encoding}: {brief(what.strip().encode(encoding, 'surrogateescape'))}"
    return None


def line_of_row(path: str, how: TextFormat, row: int) -> int | None:
    """Return the number of the line in which a row ends, which counts without empty lines; ``None`` where rows are too long."""
    rows = _rows(lines_of(path, how.encoding), how)
    with contextlib.suppress(csv.Error):
        for values in rows:
            row -= bool(values)
            if not row:
                return int(rows.line_num)
    return None


def misquoted(path: str, how: TextFormat) -> str | None:
    """Return what is wrong with the quotes of a file: a value in quotes ends where they close, at a delimiter or a line's end."""
    if how.quote is None:
        return None
    ends = np.zeros(256, bool)
    ends[[ord("\n"), ord("\r"), ord(how.delimiter)]] = True
    around = ends.copy()  # what may be before a quote that opens a value, and after one that closes it
    around[quote := ord(how.quote)] = True
    inside = False
    began = closed = -1  # where the last quoted value begins, and its last quote before now
    start, data = 0, b"\n"
    for chunk in _with_end(path, how.encoding):
        data += chunk  # the first byte has been looked at, and the last is looked at in the next round
        if quote in data:
            bytes_ = np.frombuffer(data, np.uint8)
            quotes = np.flatnonzero(bytes_[1:-1] == quote) + 1
            opening, closing = quotes[int(inside) :: 2], quotes[1 - int(inside) :: 2]
            first = inside or not len(quotes) or ends[bytes_[quotes[0] - 1]] or start + quotes[0] - 1 == closed
            if first and around[bytes_[opening - 1]].all() and around[bytes_[closing + 1]].all():
                begins = opening[ends[bytes_[opening - 1]]]
                began = start + int(begins[-1]) if len(begins) else began
                closed = start + int(closing[-1]) if len(closing) else closed
                inside = bool((len(quotes) + inside) % 2)
            else:  # one by one: a quote within a value that has none around it is a character
                for place in quotes.tolist():
                    at = start + place
                    if inside:
                        inside, closed = False, at
                        if not around[data[place + 1]]:
                            after = data[place + 1 : place + 20].decode(errors="replace").splitlines()[0]
                            first_line, last_line = _line_at(path, how.encoding, began), _line_at(path, how.encoding, at)
                            return (
                                f"the quoted value that begins in line {first_line} is closed in line {last_line}, and {after!r}"
                                " follows: write a quote in a value twice"
                            )
                    elif ends[data[place - 1]]:
                        inside, began = True, at
                    elif closed == at - 1:
                        inside = True
        start += max(len(data) - 2, 0)
        data = data[-2:]
    return f"the quoted value that begins in line {_line_at(path, how.encoding, began)} is not closed" if inside else None


def _with_end(path: str, encoding: str | None) -> Iterator[bytes]:
    """Yield the chunks of a file without a byte order mark, and a line's end after them."""
    mark = b"\xef\xbb\xbf"
    for chunk in chunks(path, encoding):
        yield chunk.removeprefix(mark)
        mark = b""
    yield b"\n"


def _line_at(path: str, encoding: str | None, place: int) -> int:
    """Return the number of the line with the byte ``place``, counted from 1."""
    lines = returns = 0
    for chunk in _with_end(path, encoding):
        part = chunk[: max(place, 0)]
        lines, returns, place = lines + part.count(b"\n"), returns + part.count(b"\r"), place - len(chunk)
    return (lines or returns) + 1


_CODE: Final = r"^[ \t]*[+-]?0[0-9xX]"
"""What a number does not begin with, and a code may."""

_WHOLE: Final = r"^[ \t]*[+-]?[0-9]+[ \t]*$"
_LONG: Final = r"^[ \t]*[+-]?[0-9]{19,}[ \t]*$"

_MARKERS: Final = frozenset(
    {"", "-", "--", ".", "?", "n/a", "na", "nan", "nil", "none", "null", "#n/a", "\\n", "unknown", "missing"}
)
"""How files write, in lower case, that a value is missing."""

_BEFORE: Final = np.zeros(256, bool)
"""Bytes that may stand before a value: any that is no part of a word or a number."""
_BEFORE[:] = True
_BEFORE[[*range(48, 58), *range(65, 91), *range(97, 123), *b"._:/-+", *range(128, 256)]] = False
_WITHIN: Final = np.zeros(256, bool)
"""Bytes after two digits that make them a part of a date or of a time of day."""
_WITHIN[[*b":/-"]] = True


def codes_in(columns: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Return the first code of each column of texts that has one: a zero, and a digit or an ``x`` after it."""
    first_codes = {}
    for name, column in columns:
        codes = column.filter(pc.match_substring_regex(column, _CODE))
        if len(codes):
            first_codes[name] = codes[0].as_py()
    return first_codes


def are_long(texts: Any) -> bool:
    """Return whether texts are whole numbers, some of 19 digits or more: as doubles, different ones could be equal.

    >>> are_long(pa.array(["1", "12345678901234567890"])), are_long(pa.array(["1.5", "12345678901234567890"]))
    (True, False)
    """
    any_long, all_whole = pc.any(pc.match_substring_regex(texts, _LONG)), pc.all(pc.match_substring_regex(texts, _WHOLE))
    return bool(any_long.as_py() and all_whole.as_py())


def may_have_codes(path: str, how: TextFormat) -> bool:
    """Return whether a file may have a code somewhere; it may have none all the same, but not the other way round."""
    starts, within = _BEFORE.copy(), _WITHIN.copy()
    starts[ord(how.delimiter)], within[ord(how.delimiter)] = True, False
    last = b"\n"
    for chunk in chunks(path, how.encoding):
        chunk = last + chunk
        text = np.frombuffer(chunk + b"\n\n", np.uint8)
        zeros = np.flatnonzero(text[1:-2] == 48) + 1
        signed = np.isin(text[zeros - 1], (43, 45))
        before = starts[text[zeros - 1]] | (signed & starts[text[np.maximum(zeros - 2, 0)]])
        after = text[zeros + 1]
        of_a_code = ((after >= 48) & (after <= 57) & ~within[text[zeros + 2]]) | ((after | 32) == 120)
        if np.any(before & of_a_code):
            return True
        last = chunk[-4:]
    return False


def other_delimiter(columns: Sequence[str], delimiter: str) -> str | None:
    """Return the character that seems to separate a header instead; ``None`` for any other header.

    >>> other_delimiter(["name;price"], ","), other_delimiter(["name, first"], ","), other_delimiter(["name;first", "price"], ",")
    (';', None, None)
    """
    return next((each for each in ";\t|," if each != delimiter and len(columns) == 1 and each in columns[0]), None)


def delimiter_remedy(columns: Sequence[str], delimiter: str) -> str | None:
    """Return what to do about a header that another character seems to separate."""
    other = other_delimiter(columns, delimiter)
    return None if other is None else f"values seem to be separated by another character: delimiter={other!r}"


def remedy(
    error: str, columns: Sequence[str], declare: str, how: TextFormat, path: str, written: Callable[[str, str], str]
) -> str:
    """Return what Arrow says of a file, with the line, the name of the column and a remedy.

    ``declare`` is how a column ``{name}`` is declared to be of a type ``{kind}``, ``written`` how an option is given.

    >>> error = "In CSV column #1: CSV conversion error to int64: invalid value 'n/a'"
    >>> remedy(error, ["id", "n"], "{name}: {kind}", TextFormat(","), "", "{}={!r}".format)
    "column 'n' is int64, and has 'n/a': null_values='n/a' reads it as missing, n: string reads it as text"
    """
    if "straddling object" in error:
        return "a row has more than a megabyte, which is more than is read at once"
    if "Empty CSV file" in error:
        return "its first line, with the names of the columns, is missing or does not end: write one, and end it"
    match = re.search(r"In CSV column #([0-9]+): (?:Row #([0-9]+): )?CSV conversion error to (.+?): (.*)", error, re.DOTALL)
    if match is not None:
        place, line, kind, why = int(match[1]), _line(path, how, match[2]), match[3], match[4]
        name = columns[place] if place < len(columns) else f"number {place + 1}"
        value = re.search(r"invalid value '(.*)'", why, re.DOTALL)
        text = "" if value is None else value[1]
        what = f"has {text!r}" if value is not None else f"has another value ({why})"
        ways = []
        if value is not None and text.strip().lower() in _MARKERS:
            ways.append(f"{written('null_values', text)} reads it as missing")
        if re.fullmatch(r"[+-]?[0-9]+,[0-9]+", text):
            ways.append(f"{written('decimal', ',')} reads it as {text.replace(',', '.')}")
        numeric = kind == "int64" and re.fullmatch(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?", text)
        if numeric and re.search(_LONG, text) is None:  # a double has fewer digits
            ways.append(f"{declare.format(name=name, kind='double')} reads it as a number")
        ways.append(f"{declare.format(name=name, kind='string')} reads it as text")
        return f"column {name!r} is {kind}, and{f' {line}' if line else ''} {what}: {', '.join(ways)}"
    if "multiple columns named" in error:
        return f"two columns are called {error.rpartition('named ')[2]!r}: rename one in its first line"
    match = re.search(r"(?:Row #([0-9]+): )?Expected ([0-9]+) columns, got ([0-9]+): (.*)", error, re.DOTALL)
    if match is None:
        return error
    many = f"{match[3]} value{'' if match[3] == '1' else 's'}"
    text = f"{_line(path, how, match[1]) or 'a row'} has {many}, and the header {match[2]}: {match[4]}"
    quotes = f"a value with {how.delimiter!r} in it needs quotes" if int(match[3]) > int(match[2]) else ""
    advice = delimiter_remedy(columns, how.delimiter) or quotes
    return f"{text}; {advice}" if advice else text


def _line(path: str, how: TextFormat, row: str | None) -> str:
    """Return the line in which a row ends, for errors."""
    line = line_of_row(path, how, int(row)) if row else None
    return f"line {line}" if line else f"row {row}" if row else ""


def looks(texts: Any, name: str, written: Callable[[str, str], str]) -> str | None:
    """Return what a column of texts looks like, with what reads it so; ``None`` where texts are what it has.

    >>> looks(pa.array(["31.12.2025", None]), "day", "--{} {}".format)
    "dates as in '31.12.2025': strptime(day, '%d.%m.%Y')::date in a view"
    >>> looks(pa.array(["7", "1,5"]), "price", "--{} {}".format), looks(pa.array(["01067"]), "zip", "--{} {}".format)
    ("numbers as in '1,5': --decimal ,", None)
    """
    texts = texts.drop_null()
    marked = texts.filter(pc.match_substring_regex(texts, r"[^\d+-]"))  # else they are codes, or have many digits
    for pattern, what, advice in _LOOKS if len(marked) else ():
        odd = texts.filter(pc.invert(pc.match_substring_regex(texts, pattern)))
        if not len(odd) and advice:
            return f"{what} as in {marked[0].as_py()!r}: {advice.format(name=name, decimal=written('decimal', ','))}"
        if not advice and 0 < 2 * len(odd) <= len(texts) and not pc.any(pc.match_substring_regex(odd, r"\d")).as_py():
            return f"{what} but for {odd[0].as_py()!r}: {written('null_values', odd[0].as_py())} reads it as missing"
    return None


def may_be_thousands(texts: Any) -> str | None:
    """Return a text of a column that is read as decimals, where the points of all may as well separate thousands.

    >>> may_be_thousands(pa.array(["7", "1.500"])), may_be_thousands(pa.array(["0.500", "1.500"]))
    ('1.500', None)
    """
    pointed = texts.filter(pc.match_substring(texts, "."))
    alike = pc.all(pc.match_substring_regex(texts, r"^[+-]?(0|[1-9]\d{0,2}(\.\d{3})?)$")).as_py()
    return pointed[0].as_py() if len(pointed) and alike else None


_LOOKS: Final = (
    (r"^\d{1,2}\.\d{1,2}\.\d{4}$", "dates", "strptime({name}, '%d.%m.%Y')::date in a view"),
    (r"^\d{1,2}/(1[3-9]|2\d|3[01])/\d{4}$", "dates", "strptime({name}, '%m/%d/%Y')::date in a view"),
    (r"^\d{1,2}/\d{1,2}/\d{4}$", "dates", "strptime({name}, '%d/%m/%Y')::date in a view, or %m/%d where the month comes first"),
    (
        r"^[+-]?(0|[1-9]\d{0,2}(,\d{3})?)$",
        "numbers",
        "replace({name}, ',', '')::double in a view, or {decimal} where it is before decimals",
    ),
    (r"^[+-]?(0|[1-9]\d{0,2}(,\d{3})*)(\.\d+)?$", "numbers", "replace({name}, ',', '')::double in a view"),
    (r"^[+-]?(0|[1-9]\d*)(,\d+)?$", "numbers", "{decimal}"),
    (r"^[+-]?(0|[1-9]\d{0,2}(\.\d{3})*)(,\d+)?$", "numbers", "replace(replace({name}, '.', ''), ',', '.')::double in a view"),
    (
        r"^[$€£]?\s?[+-]?\d+(,\d{3})*(\.\d+)?\s?[%$€£]?$",
        "numbers",
        "regexp_replace({name}, '[^0-9.-]', '', 'g')::double in a view",
    ),
    (r"^\s*[+-]?(0|[1-9]\d*)([.,]\d+)?\s*$", "numbers", ""),
)
"""Patterns of texts, what they are, and what reads them so."""


def batches_as_texts(fragment: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of Arrow's fragment of CSV with some columns alone, as texts."""
    schema = pa.schema([(name, pa.string()) for name in names])
    yield from fragment.to_batches(schema=schema, columns=list(names))


_LONGEST: Final = 1 << 28
"""Bytes of a line: a compressed file of a few bytes can have lines without end."""

_DEEPEST: Final = 100
"""Levels of nested JSON: Arrow's parser ends the process at ten thousand or so."""

_STRING: Final = pa.string()

_LINE: Final = b"\n"
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'"[]{}'))
_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)
_TEXT: Final = re.compile(rb'"[^"]*"')
_NULL: Final = re.compile(rb"[\n\r][ \t]*null")
"""A line that is null, of which Arrow makes an object without fields, and ends the process where it is the first."""


def json_batches(path: str, encoding: str | None, schema: pa.Schema, rows: int, *, strict: bool) -> Iterator[pa.RecordBatch]:
    """Yield the lines of a file as batches of ``schema``, of at most ``rows`` rows."""
    for table in _tables(path, encoding, schema, strict=strict):
        yield from table.combine_chunks().to_batches(max_chunksize=rows)


def json_schema(path: str, encoding: str | None) -> pa.Schema:
    """Return the types that the first lines of a file have."""
    for table in _tables(path, encoding, None, strict=True):
        schema = table.schema
        for place, field in enumerate(schema):
            texts = field.with_type(_as_text(field.type))
            if texts.type != field.type:
                column = next(_tables(path, encoding, pa.schema([texts]), strict=False)).column(0)
                schema = schema.set(place, field.with_type(_type_of_moments(column, field.type)))
        return schema
    return pa.schema([])


def _lines(path: str, encoding: str | None) -> Iterator[bytes]:
    """Yield the file in chunks of whole lines, without a byte order mark."""
    left: list[bytes] = []
    size = 0
    for chunk in chunks(path, encoding):
        end = chunk.rfind(_LINE) + 1
        if end:
            yield b"".join([*left, chunk[:end]])
            left, size = [], 0
        left.append(chunk[end:])
        size += len(chunk) - end
        if size > _LONGEST:
            raise pa.ArrowInvalid(f"a line has more than {_LONGEST} bytes")
    yield b"".join(left)


def _tables(path: str, encoding: str | None, schema: pa.Schema | None, *, strict: bool) -> Iterator[pa.Table]:
    """Yield the lines of a file as tables of ``schema``; of the types that they have if there is none."""
    line = 1
    for chunk in _lines(path, encoding):
        if encoding is None and not chunk.isascii():
            chunk.decode()  # which raises for what Arrow takes as it is
        if chunk.strip():
            _check_structure(chunk, line)
            try:
                table = _parsed(chunk, schema, strict)
            except pa.ArrowException as error:
                raise pa.ArrowInvalid(_located(chunk, line, schema, strict)) from error
            yield table
        line += chunk.count(_LINE)


def _check_structure(lines: bytes, line: int) -> None:
    """Raise ``pyarrow.ArrowInvalid`` for lines that are no objects, and for values nested too deep or never closed."""
    null = _NULL.search(lines)
    if null or lines.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
        at = line + (lines.count(_LINE, 0, null.end()) if null else 0)
        raise pa.ArrowInvalid(f"line {at} is no JSON object, and each line should be one: {brief(lines[:40])}")
    escaped = _ESCAPED.sub(b"", lines) if b"\\" in lines else lines
    brackets = escaped.translate(None, _NOT_STRUCTURE).replace(b'""', b"")  # two quotes change nothing for what is around them
    brackets = _TEXT.sub(b"", brackets)
    for _ in range(_DEEPEST):
        inner = len(brackets)
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(brackets) == inner:
            deep = inner > _DEEPEST  # what is left does not close, which is for the parser to say
            break
    else:
        deep = bool(brackets)
    if deep:
        raise pa.ArrowInvalid(
            f"values are nested more than {_DEEPEST} deep, or not closed, in the lines {line} to {line + lines.count(_LINE)}"
        )


def _parsed(lines: bytes, schema: pa.Schema | None, strict: bool) -> pa.Table:
    unexpected = "infer" if schema is None else "error" if strict else "ignore"
    parsed = None if schema is None else pa.schema([field.with_type(_as_text(field.type)) for field in schema])
    table = pa.json.read_json(
        pa.BufferReader(lines),
        read_options=pa.json.ReadOptions(block_size=len(lines) + 1),
        parse_options=pa.json.ParseOptions(explicit_schema=parsed, unexpected_field_behavior=unexpected),
    )
    return table if schema is None else table.cast(schema)


def _located(lines: bytes, line: int, schema: pa.Schema | None, strict: bool) -> str:
    """Return what is wrong in lines that cannot be parsed: in which line, and in which column where that is known.

    Lines are parsed in halves, as Arrow does not say where a value is that it cannot convert.
    """
    rows = lines.splitlines(keepends=True)
    good, bad = 0, len(rows)
    while bad - good > 1:
        middle = (good + bad) // 2
        if _trouble(b"".join(rows[:middle]), schema, strict) is None:
            good = middle
        else:
            bad = middle
    message = _trouble(b"".join(rows[:bad]), schema, strict) or "it cannot be parsed"
    one_by_one: Callable[[pa.Field], str | None] = lambda field: _trouble(rows[bad - 1], pa.schema([field]), False)  # noqa: E731
    column = next((field.name for field in schema or () if one_by_one(field)), None) if "Column(" not in message else None
    message = re.sub(r"^JSON parse error: | in row [0-9]+|\.$", "", message.strip()).rstrip(".")
    return f"line {line + bad - 1}{f', column {column!r}' if column else ''}: {message}: {brief(rows[bad - 1][:80])}"


def _trouble(lines: bytes, schema: pa.Schema | None, strict: bool) -> str | None:
    """Return why lines cannot be parsed."""
    try:
        if lines.strip():
            _parsed(lines, schema, strict)
    except pa.ArrowException as error:
        return str(error)
    return None


def _as_text(kind: pa.DataType, moment: pa.DataType = _STRING) -> pa.DataType:
    """Return a type with ``moment`` in the place of dates and timestamps.

    Texts become these without loss: Arrow parses dates of numbers only, and ignores the zones of timestamps.
    """
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return moment
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_text(kind.value_type, moment)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_text(field.type, moment)) for field in kind])
    return kind


def _type_of_moments(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.DataType:
    """Return what the texts of timestamps are: ``kind`` without a zone, instants where all have one, or else texts."""
    for candidate in (kind, _as_text(kind, pa.timestamp("s", "UTC"))):
        try:
            texts.cast(candidate)
        except pa.ArrowInvalid:
            continue
        return candidate
    return texts.type
