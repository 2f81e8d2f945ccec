"""What the values of CSV say of their columns: codes such as ``01067`` are texts, and errors name the value and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timely.files.text_files import COMMAS, TextFormat, chunks, line_of_row

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
    """Return the first code of each column of texts that has one: a zero, and a digit or an ``x`` after it.

    >>> codes_in([("zip", pa.array(["10115", "01067"])), ("n", pa.array(["0", "0.5", None]))])
    {'zip': '01067'}
    """
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


def delimiter_remedy(columns: Sequence[str], delimiter: str, *, options: bool = True) -> str | None:
    """Return what to do about a header that another character seems to separate; ``None`` for any other header.

    >>> delimiter_remedy(["name;price"], ",")
    "values seem to be separated by another character: delimiter=';'"
    >>> delimiter_remedy(["name, first"], ","), delimiter_remedy(["name;first", "price"], ",")
    (None, None)
    """
    others = [each for each in ";\t|," if each != delimiter and len(columns) == 1 and each in columns[0]]
    if not others:
        return None
    how = f"delimiter={others[0]!r}" if options else "separate them by commas, or by tabs in .tsv"
    return f"values seem to be separated by another character: {how}"


def remedy(
    error: str, columns: Sequence[str], declare: str, how: TextFormat = COMMAS, path: str = "", *, options: bool = True
) -> str:
    """Return what Arrow says of a file, with the line, the name of the column and a remedy.

    ``declare`` is how a column ``{name}`` is declared to be of a type ``{kind}``; ``options`` says whether other options of the
    reader can be given.

    >>> remedy("In CSV column #1: CSV conversion error to int64: invalid value 'n/a'", ["id", "n"], "{name}: {kind}")
    "column 'n' is int64, and has 'n/a': null_values=['', 'n/a'] reads it as missing, n: string reads it as text"
    >>> remedy("CSV parse error: Expected 1 columns, got 2: a;1,5", ["name;price"], "")
    "a row has 2 values, and the header 1: a;1,5; values seem to be separated by another character: delimiter=';'"
    """
    if "straddling object" in error:
        return "a row has more than a megabyte, which is more than is read at once"
    if "Empty CSV file" in error:
        return "its first line, with the names of the columns, is missing or does not end"
    match = re.search(r"In CSV column #([0-9]+): (?:Row #([0-9]+): )?CSV conversion error to (.+?): (.*)", error, re.DOTALL)
    if match is not None:
        place, line, kind, why = int(match[1]), _line(path, how, match[2]), match[3], match[4]
        name = columns[place] if place < len(columns) else f"number {place + 1}"
        value = re.search(r"invalid value '(.*)'", why, re.DOTALL)
        text = "" if value is None else value[1]
        what = f"has {text!r}" if value is not None else f"has another value ({why})"
        ways = []
        if options and value is not None and text.strip().lower() in _MARKERS:
            ways.append(f"null_values=['', {text!r}] reads it as missing")
        if re.fullmatch(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?", text) and re.search(_LONG, text) is None:  # a double has fewer digits
            ways.append(f"{declare.format(name=name, kind='double')} reads it as a number")
        ways.append(f"{declare.format(name=name, kind='string')} reads it as text")
        return f"column {name!r} is {kind}, and{f' {line}' if line else ''} {what}: {', '.join(ways)}"
    match = re.search(r"(?:Row #([0-9]+): )?Expected ([0-9]+) columns, got ([0-9]+): (.*)", error, re.DOTALL)
    if match is None:
        return error
    text = f"{_line(path, how, match[1]) or 'a row'} has {match[3]} values, and the header {match[2]}: {match[4]}"
    advice = delimiter_remedy(columns, how.delimiter, options=options)
    return text if advice is None else f"{text}; {advice}"


def _line(path: str, how: TextFormat, row: str | None) -> str:
    """Return the line in which a row ends, for errors."""
    line = line_of_row(path, how, int(row)) if row else None
    return f"line {line}" if line else f"row {row}" if row else ""


def batches_as_texts(fragment: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of Arrow's fragment of CSV with some columns alone, as texts."""
    schema = pa.schema([(name, pa.string()) for name in names])
    yield from fragment.to_batches(schema=schema, columns=list(names))
