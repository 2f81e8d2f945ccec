"""Files of one JSON object a line, parsed a megabyte at a time.

Arrow's dataset of JSON leaves out fields that do not occur in the first block of a file, and its parser ends the process at some
inputs, so lines are divided and checked here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.json

from timely.errors import brief
from timely.files.text_files import chunks

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
