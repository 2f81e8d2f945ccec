"""Files of text as UTF-8, and where one is broken: bytes that are no text, quoted values that do not end."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

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


class TextFormat(NamedTuple):
    """How the values of a file of CSV are written."""

    delimiter: str
    quote: str | None = '"'
    encoding: str | None = None


COMMAS: Final = TextFormat(",")


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
        beginning = file.read(8)
    kinds = (what for bytes_, what in _BEGINNINGS.items() if beginning.startswith(bytes_))
    return next(kinds, ("it has NUL bytes, as UTF-16 has", "utf-16-le") if b"\0" in beginning else None)


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
    """Return what is wrong with the quotes of a file: a value in quotes ends where they close, at a delimiter or a line's end.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> _ = path.write_text('id,size\\n1,"5 ""\\n"\\n2,5"\\n')
    >>> misquoted(str(path), TextFormat(","))
    >>> _ = path.write_text('id,size\\n1,"5\\n2,"six\\n')
    >>> misquoted(str(path), TextFormat(","))
    "the quoted value that begins in line 2 is closed in line 3, and 'six' follows: write a quote in a value twice"
    """
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
