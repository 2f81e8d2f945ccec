"""Functions of texts, as DuckDB defines them. A text is counted by code points.

Regular expressions are those of RE2, which PyArrow has and DuckDB uses too.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from timely.differential.tables.values.kinds import Kind, conversion, list_of
from timely.differential.tables.values.overloads import NO_CHECKS, Checks, Overload, Rule, SqlFunction, overload
from timely.differential.tables.values.sizes import LONGEST, check_length, check_steps, joined, remembered
from timely.errors import SqlError, brief


def upper(text: str) -> str:
    """Return a text in upper case, letter by letter.

    >>> upper("grün"), lower("GRÜN")
    ('GRÜN', 'grün')
    """
    if text.isascii():
        return text.upper()
    return "".join("ẞ" if letter == "ß" else changed if len(changed := letter.upper()) == 1 else letter for letter in text)


def lower(text: str) -> str:
    """Return a text in lower case, letter by letter."""
    if text.isascii():
        return text.lower()
    return "".join(changed if len(changed := letter.lower()) == 1 else _LOWER.get(letter, letter) for letter in text)


_LOWER: Final = {"İ": "i"}
"""Letters that are several in lower case, and one here."""


def substring(text: str, start: int, length: int | None = None) -> str:
    """Return part of a text; the first letter is number 1, and the last is number -1. A negative length is of what stands before.

    >>> substring("hello", 2, 3), substring("hello", -3, 2), substring("hello", 0, 2), substring("hello", 3, -2)
    ('ell', 'll', 'h', 'he')
    """
    begin = start - 1 if start >= 0 else len(text) + start
    end = len(text) if length is None else begin + length
    return text[max(min(begin, end), 0) : max(begin, end, 0)]


def replace(text: str, old: str, new: str) -> str:
    """Return a text with a part replaced wherever it stands; the empty part stands nowhere."""
    if not old:
        return text
    if len(new) > len(old):
        check_length(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def concatenate(text: str, more: str) -> str:
    """Return a text with another behind it."""
    check_length(len(text) + len(more))
    return text + more


def left(text: str, count: int) -> str:
    """Return the first letters; a negative ``count`` leaves out that many of the last.

    >>> left("hello", 2), left("hello", -2), right("hello", 2), right("hello", -2)
    ('he', 'hel', 'lo', 'llo')
    """
    return text[:count]


def right(text: str, count: int) -> str:
    """Return the last letters; a negative ``count`` leaves out that many of the first."""
    return text[max(len(text) - count, 0) :] if count >= 0 else text[-count:]


def pad(at_left: bool) -> Callable[[str, int, str], str]:
    """Return what makes a text of ``count`` letters: cut at the end, or filled up.

    >>> pad(True)("7", 3, "0"), pad(False)("hello", 2, " ")
    ('007', 'he')
    """

    def padded(text: str, count: int, fill: str) -> str:
        missing = count - len(text)
        if missing <= 0:
            return text[: max(count, 0)]
        if not fill:
            raise SqlError("there is nothing to pad a text with")
        check_length(count)
        filling = (fill * (missing // len(fill) + 1))[:missing]
        return filling + text if at_left else text + filling

    return padded


def repeat(text: str, count: int) -> str:
    """Return a text several times."""
    check_length(len(text) * count)
    return text * count


def split_part(text: str, separator: str, number: int) -> str:
    """Return one of the parts between separators: the first is number 1, the last is number -1.

    >>> split_part("a,b", ",", 2), split_part("a,b", ",", -2), split_part("a,b", ",", 3)
    ('b', 'a', '')
    """
    parts = split(text, separator)
    index = number - 1 if number > 0 else len(parts) + number
    return parts[index] if number and 0 <= index < len(parts) else ""


def split(text: str, separator: str) -> tuple[str, ...]:
    """Return the parts between separators; the empty separator stands between all letters."""
    if separator:
        return tuple(text.split(separator))
    return tuple(text)


def _split(text: str | None, separator: str | None) -> tuple[str, ...] | None:
    """Return the parts of a text; without a separator, that is the text alone."""
    return None if text is None else (text,) if separator is None else split(text, separator)


def trimmed(position: str) -> Callable[..., str]:
    """Return what takes letters, or spaces, away from a text: at both sides, or one."""
    strip: Callable[[str, str], str] = {"LEADING": str.lstrip, "TRAILING": str.rstrip}.get(position, str.strip)
    return lambda text, letters=" ": strip(text, letters) if letters else text


def _unicode(text: str) -> int:
    return ord(text[0]) if text else -1


def _ascii(text: str) -> int:
    return ord(text[0]) if text else 0


def _chr(number: int) -> str:
    if not 0 < number < 0x110000 or 0xD800 <= number < 0xE000:
        raise SqlError(f"there is no letter with the number {number}")
    return chr(number)


# -- regular expressions -------------------------------------------------------------------------------------------


def _flags(options: str) -> str:
    """Return what stands before a pattern for options of DuckDB."""
    found = ""
    for option in options.replace("g", ""):
        if option not in "ics":
            raise SqlError(f"the option {option!r} of a regular expression is not supported: i, c, s and g are")
        found = {"i": found + "i", "c": found.replace("i", ""), "s": found + "s"}[option]
    return f"(?{found})" if found else ""


@remembered
def _kernel(function: str, text: str, pattern: str, *others: Any) -> Any:
    """Return a kernel of Arrow for one text; what was asked lately is remembered, as a call takes some 20 µs."""
    check_steps(text, pattern)
    try:
        if function == "matches":
            return pc.match_substring_regex(pa.scalar(text), pattern).as_py()
        if function == "count":
            return pc.count_substring_regex(pa.scalar(text), pattern).as_py()
        replacement, most = others
        return pc.replace_substring_regex(pa.scalar(text), pattern, replacement, max_replacements=most).as_py()
    except pa.ArrowException as error:
        raise SqlError(f"the regular expression {brief(pattern)}: {error}") from None


def matches(text: str, pattern: str, options: str = "") -> bool:
    """Return whether a regular expression is found in a text.

    >>> matches("hello", "l+o$"), matches("HELLO", "l+", "i"), full_match("hello", "l+")
    (True, True, False)
    """
    return bool(_kernel("matches", text, _flags(options) + pattern))


def check_pattern(pattern: str) -> None:
    """Raise ``SqlError`` for what is no regular expression."""
    _kernel("matches", "", pattern)


def full_match(text: str, pattern: str, options: str = "") -> bool:
    """Return whether a regular expression is the whole text."""
    check_pattern(pattern)  # alone: with parentheses around it, others could be right
    return bool(_kernel("matches", text, rf"{_flags(options)}\A(?:{pattern})\z"))


def regexp_replace(text: str, pattern: str, new: str, options: str = "") -> str:
    r"""Return a text with the first match replaced, or all with the option ``g``; ``\1`` is what group 1 matched.

    >>> regexp_replace("a1b22", "([0-9]+)", r"<\1>", "g")
    'a<1>b<22>'
    """
    flagged, every = _flags(options) + pattern, "g" in options
    groups = len(text) * len(re.findall(r"\\[0-9]", new))  # each match of a group is part of the text
    if len(text) + groups + len(new) * (len(text) + 1) > LONGEST:
        count = _kernel("count", text, flagged) if every else 1
        check_length(len(text) + groups + len(new) * count)
    return str(_kernel("replace", text, flagged, new, None if every else 1))


def regexp_extract(text: str | None, pattern: str | None, group: int | None = 0, options: str | None = "") -> str | None:
    """Return what the first match has matched, or one of its groups; the empty text where there is none.

    >>> regexp_extract("tel 12-34", "([0-9]+)-([0-9]+)", 2), regexp_extract("none", "[0-9]")
    ('34', '')
    """
    if text is None or pattern is None or options is None or group is None:
        return None if text is None or pattern is None or options is None else ""
    if not 0 <= group <= 8:
        raise SqlError(f"group {group} of a regular expression is not supported: 0 to 8 are")
    flags = _flags(options)
    if not _kernel("matches", text, flags + pattern):
        return ""
    if group and not _has_group(pattern, group):
        return ""
    whole = rf"\A(?s:.*?)({flags}{pattern})(?s:.*)\z"
    return str(_kernel("replace", text, whole, rf"\{group + 1}", 1))


@functools.lru_cache(maxsize=1000)
def _has_group(pattern: str, group: int) -> bool:
    try:
        pc.replace_substring_regex(pa.scalar(""), pattern, rf"\{group}")
    except pa.ArrowException:
        return False
    return True


# -- kinds that become texts ---------------------------------------------------------------------------------------


def as_text(kind: Kind) -> Callable[[Any], str] | None:
    """Return what makes a value of ``kind`` a text in ``concat`` and beside ``||``, or ``None``."""
    return None if kind in (Kind.BLOB, Kind.INTERVAL) or kind.nested else conversion(kind, Kind.TEXT)


def _texts(kinds: Sequence[Kind]) -> list[Callable[[Any], str]] | None:
    found = [as_text(kind) for kind in kinds]
    known = [convert for convert in found if convert is not None]
    return known if len(known) == len(found) else None


def _concat(kinds: Sequence[Kind]) -> Overload | None:
    converts = _texts(kinds)
    if converts is None:
        return None

    def concat(*values: Any) -> str:
        return joined("", [convert(value) for convert, value in zip(converts, values) if value is not None])

    return Overload(tuple(kinds), Kind.TEXT, concat, sees_null=True)


def _concat_ws(kinds: Sequence[Kind]) -> Overload | None:
    converts = _texts(kinds)
    if converts is None or len(kinds) < 2 or kinds[0] not in (Kind.TEXT, Kind.NULL):
        return None

    def concat(separator: str | None, *values: Any) -> str | None:
        if separator is None:
            return None
        return joined(separator, [convert(value) for convert, value in zip(converts[1:], values) if value is not None])

    return Overload(tuple(kinds), Kind.TEXT, concat, optional=True, sees_null=True)


_T, _I, _B = Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN


def _on(*arguments: str, ignored: tuple[str, ...] = (), rules: Sequence[Rule], checks: Checks = NO_CHECKS) -> SqlFunction:
    return SqlFunction(arguments, tuple(rules), ignored, checks)


TEXT_FUNCTIONS: Final[dict[Any, SqlFunction]] = {
    exp.Upper: _on("this", rules=[overload(upper, _T, _T)]),
    exp.Lower: _on("this", rules=[overload(lower, _T, _T)]),
    exp.Replace: _on("this", "expression", "replacement", rules=[overload(replace, _T, _T, _T, _T)]),
    exp.StartsWith: _on("this", "expression", rules=[overload(str.startswith, _B, _T, _T)]),
    exp.EndsWith: _on("this", "expression", rules=[overload(str.endswith, _B, _T, _T)]),
    exp.Contains: _on("this", "expression", rules=[overload(lambda text, part: part in text, _B, _T, _T)]),
    exp.StrPosition: _on("this", "substr", rules=[overload(lambda text, part: text.find(part) + 1, _I, _T, _T)]),
    exp.Substring: _on("this", "start", "length", rules=[overload(substring, _T, _T, _I), overload(substring, _T, _T, _I, _I)]),
    exp.Left: _on("this", "expression", rules=[overload(left, _T, _T, _I)], ignored=("negative_length_returns_empty",)),
    exp.Right: _on("this", "expression", rules=[overload(right, _T, _T, _I)], ignored=("negative_length_returns_empty",)),
    exp.Repeat: _on("this", "times", rules=[overload(repeat, _T, _T, _I)]),
    exp.SplitPart: _on("this", "delimiter", "part_index", rules=[overload(split_part, _T, _T, _T, _I)]),
    exp.Split: _on("this", "expression", rules=[Overload((_T, _T), list_of(_T), _split, optional=True, sees_null=True)]),
    exp.ConcatWs: _on("expressions", rules=[_concat_ws], ignored=("safe", "coalesce")),
    exp.Concat: _on("expressions", rules=[_concat], ignored=("safe", "coalesce")),
    exp.MD5: _on("this", rules=[overload(lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), _T, _T)]),
    exp.Ascii: _on("this", rules=[overload(_ascii, _I, _T)]),
    exp.Unicode: _on("this", rules=[overload(_unicode, _I, _T)]),
    exp.Chr: _on("expressions", rules=[overload(_chr, _T, _I)], ignored=("charset",)),
    exp.RegexpLike: _on(
        "this",
        "expression",
        "flag",
        rules=[overload(matches, _B, _T, _T), overload(matches, _B, _T, _T, _T)],
        checks={1: check_pattern, 2: _flags},
    ),
    exp.RegexpFullMatch: _on(
        "this",
        "expression",
        "options",
        rules=[overload(full_match, _B, _T, _T), overload(full_match, _B, _T, _T, _T)],
        checks={1: check_pattern, 2: _flags},
    ),
    exp.SimilarTo: _on("this", "expression", rules=[overload(full_match, _B, _T, _T)], checks={1: check_pattern}),
    exp.RegexpReplace: _on(
        "this",
        "expression",
        "replacement",
        "modifiers",
        rules=[overload(regexp_replace, _T, _T, _T, _T), overload(regexp_replace, _T, _T, _T, _T, _T)],
        ignored=("single_replace",),
        checks={1: check_pattern, 3: _flags},
    ),
    exp.RegexpExtract: _on(
        "this",
        "expression",
        "group",
        "parameters",
        rules=[
            overload(regexp_extract, _T, _T, _T),
            Overload((_T, _T, _I), _T, regexp_extract, optional=True, sees_null=True),
            Overload((_T, _T, _I, _T), _T, regexp_extract, optional=True, sees_null=True),
        ],
        ignored=("null_if_pos_overflow",),
        checks={1: check_pattern, 3: _flags},
    ),
}
"""The functions that sqlglot has a node for."""

NAMED_TEXT_FUNCTIONS: Final[dict[str, tuple[Rule, ...]]] = {
    "prefix": (overload(str.startswith, _B, _T, _T),),
    "suffix": (overload(str.endswith, _B, _T, _T),),
    "ord": (overload(_unicode, _I, _T),),
    "strlen": (overload(lambda text: len(text.encode()), _I, _T),),
    "octet_length": (overload(len, _I, Kind.BLOB),),
}
"""The others, by name."""
