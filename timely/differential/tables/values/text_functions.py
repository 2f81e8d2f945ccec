"""Functions of texts, as DuckDB defines them. A text is counted by code points.

Regular expressions are those of RE2, which PyArrow has and DuckDB uses too.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
import re
import unicodedata
import urllib.parse
from collections.abc import Callable
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from timely.differential.tables.values.kinds import DOUBLES, Kind, conversion, list_of
from timely.differential.tables.values.overloads import Arguments, Overload, SqlFunction, named, overload, seeing_nulls
from timely.differential.tables.values.parsing import LONGEST, check_length, joined, remembered
from timely.differential.tables.values.scalars import check_steps
from timely.errors import SqlError, brief


def upper(text: str) -> str:
    """Return a text in upper case, letter by letter."""
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
    """Return part of a text; the first letter is number 1, the last is -1. A negative length is of what stands before."""
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
    """Return the first letters; a negative ``count`` leaves out that many of the last."""
    return text[:count]


def right(text: str, count: int) -> str:
    """Return the last letters; a negative ``count`` leaves out that many of the first."""
    return text[max(len(text) - count, 0) :] if count >= 0 else text[-count:]


def pad(at_left: bool) -> Callable[[str, int, str], str]:
    """Return what makes a text of ``count`` letters: cut at the end, or filled up."""

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
    """Return one of the parts between separators: the first is number 1, the last is number -1."""
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


def _trim(names: str, strip: Callable[[str, str], str]) -> dict[str, SqlFunction]:
    """Return what takes letters, or spaces, away from a text."""

    def trimmed(text: str, letters: str = " ") -> str:
        return strip(text, letters) if letters else text

    return named(names, overload(trimmed, _T, _T), overload(trimmed, _T, _T, _T))


def _chr(number: int) -> str:
    if not 0 <= number < 0x110000 or 0xD800 <= number < 0xE000:
        raise SqlError(f"there is no letter with the number {number}")
    return chr(number)


# -- regular expressions -------------------------------------------------------------------------------------------


def _flags(options: str) -> str:
    """Return what stands before a pattern for options of DuckDB."""
    flags = ""
    for option in options.replace("g", ""):
        if option not in "ics":
            raise SqlError(f"the option {option!r} of a regular expression is not supported: i, c, s and g are")
        flags = {"i": flags + "i", "c": flags.replace("i", ""), "s": flags + "s"}[option]
    return f"(?{flags})" if flags else ""


@remembered
def _kernel(function: str, text: str, pattern: str, *others: Any) -> Any:
    """Return a kernel of Arrow for one text; what was asked lately is remembered, as a call takes some 20 µs."""
    check_steps(text, pattern)
    try:
        if function == "matches":
            return pc.match_substring_regex(pa.scalar(text), pattern).as_py()
        if function == "count":
            return pc.count_substring_regex(pa.scalar(text), pattern).as_py()
        return pc.replace_substring_regex(pa.scalar(text), pattern, *others).as_py()  # all: so many lose what is before
    except (pa.ArrowException, UnicodeDecodeError) as error:  # the latter where it matches between the bytes of a letter
        raise SqlError(f"the regular expression {brief(pattern)}: {error}") from None


def matches(text: str, pattern: str, options: str = "") -> bool:
    """Return whether a regular expression matches part of a text."""
    return bool(_kernel("matches", text, _flags(options) + pattern))


def _pattern(pattern: str) -> str:
    """Return a regular expression; ``SqlError`` for what is none, even if it were one with parentheses around it."""
    _kernel("matches", "", pattern)
    return pattern


def _options(options: str) -> str:
    """Return the options of a regular expression; ``SqlError`` for others."""
    _flags(options)
    return options


def full_match(text: str, pattern: str, options: str = "") -> bool:
    """Return whether a regular expression is the whole text."""
    return bool(_kernel("matches", text, rf"{_flags(options)}\A(?:{pattern})\z"))


def regexp_replace(text: str, pattern: str, new: str, options: str = "") -> str:
    r"""Return a text with the first match replaced, or all with the option ``g``; ``\1`` is what group 1 matched."""
    flagged, every = _flags(options) + pattern, "g" in options
    groups = len(text) * len(re.findall(r"\\[0-9]", new))  # each match of a group is part of the text
    if len(text) + groups + len(new) * (len(text) + 1) > LONGEST:
        check_length(len(text) + groups + len(new) * int(_kernel("count", text, flagged)))
    if every:
        return str(_kernel("replace", text, flagged, new))
    parts = _marked(text, flagged, new, r"\0")
    return "".join(part for place, part in enumerate(parts) if place < 2 or (place > 2 and place % 3 != 1))


def regexp_extract(text: str | None, pattern: str | None, group: int | None = 0, options: str | None = "") -> str | None:
    """Return what the first match has matched, or one of its groups; the empty text where there is none."""
    if text is None or pattern is None or options is None or group is None:
        return None if text is None or pattern is None or options is None else ""
    if not 0 <= group <= 8:
        raise SqlError(f"group {group} of a regular expression is not supported: 0 to 8 are")
    if group and not _has_group(pattern, group):
        return ""
    return (*_marked(text, _flags(options) + pattern, rf"\{group}"), "")[1]


@functools.lru_cache(maxsize=1000)
def _has_group(pattern: str, group: int) -> bool:
    try:
        pc.replace_substring_regex(pa.scalar(""), pattern, rf"\{group}")
    except pa.ArrowException:
        return False
    return True


def _parts(text: str, pattern: str, replacement: str) -> list[str]:
    """Return what stands before, in and behind the matches of a regular expression; a match becomes ``replacement``."""
    empty = re.sub(r"\\(.)|[\^$]", lambda part: part[0] if part[1] not in (None, *"AbBz") else "(?:)", pattern)
    if matches("", rf"\A(?:{empty})\z"):  # DuckDB counts empty matches otherwise than RE2 does
        raise SqlError(f"the regular expression {brief(pattern)} may match the empty text: let it match at least one letter")
    return _marked(text, pattern, replacement)


def _marked(text: str, pattern: str, *replacements: str) -> list[str]:
    """Return what stands before, between and behind the matches of a regular expression, with what each match becomes."""
    known = "".join((text, pattern, *replacements))
    mark = next(letter for letter in map(chr, range(0xE000, 0x10FFFF)) if letter not in known)
    return str(_kernel("replace", text, pattern, mark.join(("", *replacements, "")))).split(mark)


def _extract_all(text: str, pattern: str, group: int = 0, options: str = "") -> tuple[str, ...]:
    """Return what each match has matched, or one of its groups."""
    if not 0 <= group <= 8 or (group and not _has_group(pattern, group)):
        raise SqlError(f"the regular expression {brief(pattern)} has no group {group}: 0 to 8 are supported")
    values = tuple(_parts(text, _flags(options) + pattern, rf"\{group}")[1::2])
    if group and "" in values:
        raise SqlError(f"group {group} of the regular expression {brief(pattern)} is empty: let it match at least one letter")
    return values


def _split_by(text: str, pattern: str, options: str = "") -> tuple[str, ...]:
    return tuple(_parts(text, _flags(options) + pattern, "")[::2])


# -- letters and bytes ---------------------------------------------------------------------------------------------

_JOINING: Final = re.compile(
    "[\u0e33\u0eb3\u0d4e\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff\uff9e\uff9f\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a\U00011a84-\U00011a89\U00011d46\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff\r]"
)
"""Letters that are one with those beside them, beside those whose category says so."""


def _reversed(text: str) -> str:
    """Return a text from its last letter to its first; DuckDB keeps letters together that are one sign."""
    if not text.isascii() and (
        _JOINING.search(text) or any(unicodedata.category(letter) in ("Mn", "Mc", "Me", "Cf", "Cn") for letter in text)
    ):
        raise SqlError(f"reverse of {brief(text)} is not supported: it has letters that belong to those before them")
    return text[::-1]


def _translated(text: str, letters: str, others: str) -> str:
    """Return a text with each of some letters replaced by another one, or by none."""
    changes = dict(zip(reversed(letters), reversed([*others, *[""] * len(letters)][: len(letters)])))
    return "".join(changes.get(letter, letter) for letter in text)


def _distance(one: str, other: str) -> int:
    """Return how many letters are added, removed or replaced between texts."""
    if len(one) * len(other) > LONGEST:
        raise SqlError(f"levenshtein takes shorter texts than {brief(one)} and {brief(other)}")
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        after = [row]
        for place, same in enumerate(other):
            after.append(min(before[place + 1] + 1, after[-1] + 1, before[place] + (letter != same)))
        before = after
    return before[-1]


def _digits(form: str) -> Callable[[int], str]:
    """Return what writes a whole number to another base; a negative one as its 64 bits."""

    def digits(value: int) -> str:
        if value < -(1 << 63):
            raise SqlError(f"{value} does not fit a whole number of 64 bits")
        return format(value if value >= 0 else value + (1 << 64), form)

    return digits


def _bits(value: bytes) -> str:
    check_length(8 * len(value))
    return "".join(f"{byte:08b}" for byte in value)


def _bytes_of_digits(text: str) -> bytes:
    if not re.fullmatch("[0-9A-Fa-f]*", text):
        raise SqlError(f"{brief(text)} has letters that are no digits of base 16")
    return bytes.fromhex(text if len(text) % 2 == 0 else f"0{text}")


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise SqlError(f"the bytes are no text: {error}") from None


def _of_bytes(f: Callable[[bytes], Any], result: Kind) -> tuple[Overload, Overload]:
    """Return the overloads of a function of bytes, or of those that a text is."""
    return overload(lambda text: f(text.encode()), result, _T), overload(f, result, Kind.BLOB)


def _hash(name: str) -> Callable[[bytes], str]:
    return lambda value: hashlib.new(name, value, usedforsecurity=False).hexdigest()


# -- kinds that become texts ---------------------------------------------------------------------------------------


def as_text(kind: Kind) -> Callable[[Any], str] | None:
    """Return what makes a value of ``kind`` a text in ``concat`` and beside ``||``, or ``None``."""
    return None if kind in (Kind.BLOB, Kind.INTERVAL) or kind.nested else conversion(kind, Kind.TEXT)


def _concat(separated: bool) -> Callable[[Arguments], Overload | None]:
    """Return the rule of ``concat``, or of ``concat_ws``, whose first argument stands between the others."""

    def rule(kinds: Arguments) -> Overload | None:
        converts = [as_text(kind) for kind in kinds[separated:]]
        if None in converts or (separated and (not converts or kinds[0] not in (Kind.TEXT, Kind.NULL))):
            return None

        def concat(*values: Any) -> str | None:
            separator = values[0] if separated else ""
            pairs = zip(converts, values[separated:])
            texts = [convert(value) for convert, value in pairs if convert is not None and value is not None]
            return None if separator is None else joined(separator, texts)

        return seeing_nulls(concat, Kind.TEXT, kinds, optional=separated)

    return rule


_T, _I, _B = Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN


def _regexp(name: str, f: Callable[..., Any], result: Kind, count: int) -> dict[str, SqlFunction]:
    """Return a function of ``count`` texts, of which the second is a pattern, and perhaps one more, which has options."""
    overloads = (overload(f, result, *[_T] * width) for width in (count, count + 1))
    return named(name, *overloads, prepared={1: _pattern, count: _options})


TEXT_FUNCTIONS: Final = {
    **named("upper, ucase", overload(upper, _T, _T)),
    **named("lower, lcase", overload(lower, _T, _T)),
    **named("replace", overload(replace, _T, _T, _T, _T)),
    **named("starts_with, prefix", overload(str.startswith, _B, _T, _T)),
    **named("ends_with, suffix", overload(str.endswith, _B, _T, _T)),
    **named("contains", overload(lambda text, part: part in text, _B, _T, _T)),
    **named("strpos, instr", overload(lambda text, part: text.find(part) + 1, _I, _T, _T)),
    **named("substring, substr", overload(substring, _T, _T, _I), overload(substring, _T, _T, _I, _I)),
    **named("left", overload(left, _T, _T, _I)),
    **named("right", overload(right, _T, _T, _I)),
    **named("lpad", overload(pad(True), _T, _T, _I, _T)),
    **named("rpad", overload(pad(False), _T, _T, _I, _T)),
    **_trim("trim", str.strip),
    **_trim("ltrim", str.lstrip),
    **_trim("rtrim", str.rstrip),
    **named("split_part", overload(split_part, _T, _T, _T, _I)),
    **named("split, str_split, string_split, string_to_array", seeing_nulls(_split, list_of(_T), (_T, _T))),
    **named("concat", _concat(False)),
    **named("concat_ws", _concat(True)),
    **{name: SqlFunction(_of_bytes(_hash(name), _T)) for name in ("md5", "sha1", "sha256")},
    **named("bit_length", overload(lambda text: 8 * len(text.encode()), _I, _T)),
    **named("hex, to_hex", *_of_bytes(lambda value: value.hex().upper(), _T), overload(_digits("X"), _T, _I)),
    **named("bin, to_binary", *_of_bytes(_bits, _T), overload(_digits("b"), _T, _I)),
    **named("unhex, from_hex", overload(_bytes_of_digits, Kind.BLOB, _T)),
    **named("base64, to_base64", overload(lambda value: base64.b64encode(value).decode(), _T, Kind.BLOB)),
    **named("encode", overload(str.encode, Kind.BLOB, _T)),
    **named("decode", overload(_decoded, _T, Kind.BLOB)),
    **named("url_encode", overload(lambda text: urllib.parse.quote(text, safe="~-_."), _T, _T)),
    **named("reverse", overload(_reversed, _T, _T)),
    **named("translate", overload(_translated, _T, _T, _T, _T)),
    **named("levenshtein, editdist3", overload(_distance, _I, _T, _T)),
    **named("ascii", overload(lambda text: ord(text[0]) if text else 0, _I, _T)),
    **named("unicode, ord", overload(lambda text: ord(text[0]) if text else -1, _I, _T)),
    **named("chr", overload(_chr, _T, _I)),
    **named("strlen", overload(lambda text: len(text.encode()), _I, _T)),
    **named("octet_length", overload(len, _I, Kind.BLOB)),
    **named("regexp_escape", overload(lambda text: re.sub(r"[^A-Za-z0-9_\x80-\U0010ffff]", r"\\\g<0>", text), _T, _T)),
    **named(
        "regexp_extract_all",
        *(overload(_extract_all, list_of(_T), *kinds) for kinds in ((_T, _T), (_T, _T, _I), (_T, _T, _I, _T))),
        prepared={1: _pattern, 3: _options},
    ),
    **_regexp("regexp_split_to_array, string_split_regex, str_split_regex", _split_by, list_of(_T), 2),
    **_regexp("regexp_matches", matches, _B, 2),
    **_regexp("regexp_full_match", full_match, _B, 2),
    **_regexp("regexp_replace", regexp_replace, _T, 3),
    **named(
        "regexp_extract",
        overload(regexp_extract, _T, _T, _T),
        seeing_nulls(regexp_extract, _T, (_T, _T, _I)),
        seeing_nulls(regexp_extract, _T, (_T, _T, _I, _T)),
        prepared={1: _pattern, 3: _options},
    ),
}


# -- format and printf: a format is read once, and what DuckDB formats otherwise than Python does is refused ---------------


@attrs.frozen
class _Field:
    """What a value becomes: ``spec`` is one of Python, without its type."""

    place: int
    spec: str
    type: str
    unsigned: bool = False

    def text(self, values: tuple[Any, ...]) -> str:
        if not 0 <= self.place < len(values):
            raise SqlError(f"the format has a field number {self.place + 1}, and there are {len(values)} values")
        value = values[self.place]
        if self.unsigned and type(value) is int and value < 0:
            value &= (1 << 64) - 1
        if self.type == "c" and type(value) is int and 0 < value < 128:
            return format(chr(value), self.spec)
        types = next(types for kind, types in _TYPES.items() if isinstance(value, kind))
        refused = {str: "[+ ,_]|^0", float: "(?!)"}.get(type(value), "[.]" if self.type in ("", "s", "d") else "[.,]")
        if self.type not in types or re.search(refused, self.spec):
            raise SqlError(f"the type {self.type or 'of no letter'!r} of a format is not supported for {brief(value)}")
        if isinstance(value, float) and not self.type and "." in self.spec:
            raise SqlError("a format with a precision needs a type: write .2f or .2g")
        if isinstance(value, float) and abs(value) >= 1 << 63:  # other digits, or another side, than Python has
            fills = re.search("[0-9]", self.spec.partition(".")[0])
            if self.type in ("f", "F") if math.isfinite(value) else fills:
                raise SqlError(f"{value} is too large for the format: write {{}}, %e or %g")
        if isinstance(value, bool):
            value = int(value) if self.type == "d" else "true" if value else "false"
        return format(value, self.spec + ("" if isinstance(value, str) else self.type))


_TYPES: Final = {bool: ("", "s", "d"), int: ("", *"dxXob"), float: ("", *"fFeEgG"), str: ("", "s")}
"""The types of fields for values."""

_Parts = tuple[str | _Field, ...]
_SIGN: Final = "[+ ]?"
_SPEC: Final = rf"(?:(?:[ -z|~]?[<>^]){_SIGN}(?:[1-9][0-9]{{0,3}})?|{_SIGN}(?:0?[1-9][0-9]{{0,3}}|[,_])?)(?:\.[0-9]{{1,4}})?"
_BRACES: Final = re.compile(rf"([^{{}}]+)|(\{{\{{|\}}\}})|\{{([0-9]{{0,4}})(?::({_SPEC})([bdeEfFgGosxX]?))?\}}")
_PERCENTS: Final = re.compile(
    r"([^%]+)|(%%)|%(?:([0-9]{1,4})\$)?([-+ 0,]*)([1-9][0-9]{0,3})?(\.[0-9]{1,4})?(?:hh?|ll?)?([cdeEfFgGiosuxX])"
)


def _read(pattern: re.Pattern[str], field: Callable[[re.Match[str], int], _Field]) -> Callable[[str], _Parts]:
    """Return what reads a format, whose fields without a number are those after another."""

    def read(text: str) -> _Parts:
        parts: list[str | _Field] = []
        place, count, are_numbered = 0, 0, set[bool]()
        while place < len(text):
            match = pattern.match(text, place)
            if match is None:
                raise SqlError(f"the format {brief(text)} is not supported from {brief(text[place:])} on")
            literal = match[1] or (match[2] and match[2][0])
            if literal:
                parts.append(literal)
            else:
                parts.append(field(match, count))
                count += not match[3]
                are_numbered.add(bool(match[3]))
                if len(are_numbered) > 1:
                    raise SqlError(f"the format {brief(text)} has fields with numbers and without")
            place = match.end()
        return tuple(parts)

    return read


def _braced(match: re.Match[str], count: int) -> _Field:
    return _Field(int(match[3]) if match[3] else count, match[4] or "", match[5] or "")


def _percent(match: re.Match[str], count: int) -> _Field:
    flags, width, precision = match[4], match[5] or "", match[6] or ""
    type_ = "d" if match[7] in "iu" else match[7]
    if len(set(flags)) < len(flags) or ("0" in flags and {*"-,"} & {*flags}) or (flags and type_ == "c"):
        raise SqlError(f"the flags {brief(flags)} of a format are not supported together")
    sign = "+" if "+" in flags else " " if " " in flags else ""
    zero = "0" if "0" in flags and width else ""
    align = "<" if "-" in flags else "" if zero else ">"
    spec = f"{align}{sign}{zero}{width}{',' * (',' in flags)}{precision}"
    return _Field(int(match[3]) - 1 if match[3] else count, spec, type_, type_ in "xXo")


def _formatted(kinds: Arguments) -> Overload | None:
    converts: list[Callable[[Any], Any] | None] = []
    for kind in kinds[1:]:
        number = float if kind.base is Kind.DECIMAL else (lambda value: value)
        convert = number if kind.base in (Kind.BOOLEAN, Kind.INTEGER, *DOUBLES, Kind.DECIMAL) else as_text(kind)
        converts.append(convert)

    def text(parts: _Parts, *values: Any) -> str:
        shown = tuple(convert(value) for convert, value in zip(converts, values) if convert is not None)
        return joined("", (part if isinstance(part, str) else part.text(shown) for part in parts))

    return None if None in converts or not kinds else overload(text, Kind.TEXT, Kind.TEXT, *kinds[1:])


FORMAT_FUNCTIONS: Final = {
    "format": SqlFunction((_formatted,), {0: _read(_BRACES, _braced)}),
    "printf": SqlFunction((_formatted,), {0: _read(_PERCENTS, _percent)}),
}
