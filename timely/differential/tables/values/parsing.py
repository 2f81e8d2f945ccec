"""Texts that become other values, as casts of DuckDB make them; ``SqlError`` for those that do not.

The zone of a text counts for an instant only. Moments outside of the years 1 to 9999 are no values here: ``OutOfYears``.
"""

from __future__ import annotations

import datetime
import functools
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from timely.errors import SqlError, brief, did_you_mean
from timely.operators.keyed.numbers import NAN

LONGEST: Final = 1 << 24
"""Letters of the longest text, and elements of the longest list, that a function makes."""

_SHORT: Final = 500

R = TypeVar("R")


def remembered(f: Callable[..., R]) -> Callable[..., R]:
    """Return ``f``, which remembers what it returned lately for short texts."""
    memory = functools.lru_cache(maxsize=10_000)(f)

    @functools.wraps(f)
    def call(*arguments: Any) -> R:
        for value in arguments:
            if type(value) is str and len(value) > _SHORT:
                return f(*arguments)
        return memory(*arguments)

    return call


def check_length(count: int, of: str = "text") -> None:
    """Raise ``SqlError`` for a text or list that would be too long, before it is made."""
    if count > LONGEST:
        unit = "letters" if of == "text" else "elements"
        raise SqlError(f"a {of} of {count:,} {unit} is too long: at most {LONGEST:,} are possible")


def joined(separator: str, texts: Iterable[str]) -> str:
    """Return texts with a separator between them; ``SqlError`` where that is too long, before more are made."""
    parts, length = [], 0
    for text in texts:
        parts.append(text)
        length += len(text) + len(separator)
        check_length(length)
    return separator.join(parts)


def zone(name: str) -> ZoneInfo:
    """Return a time zone, whose name may be written in any case; ``SqlError`` for an unknown one."""
    known = _names().get(name.lower())
    if known is None:
        raise SqlError(f"there is no time zone {brief(name)}{did_you_mean(name, _names().values())}")
    try:
        return ZoneInfo(known)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise SqlError(f"the rules of the time zone {known} cannot be read on this machine") from None


@functools.cache
def _names() -> Mapping[str, str]:
    """The names of zones by their lower case. The zone of the machine is none: it would differ between machines."""
    return {name.lower(): name for name in available_timezones() if name != "localtime"}


def in_zone(value: datetime.datetime, place: ZoneInfo) -> datetime.datetime:
    """Return the instant at which clocks of a zone show ``value``, as DuckDB does.

    In an hour that comes twice, that is the later instant; one that is skipped is as long after the change as it is written.
    """
    moment = value.replace(tzinfo=place, fold=0)
    other = moment.replace(fold=1)
    return to_utc(moment if moment.utcoffset() == other.utcoffset() else max(moment, other, key=to_utc))


def to_utc(value: datetime.datetime) -> datetime.datetime:
    """Return an instant as it is kept in a table."""
    try:
        return value.astimezone(datetime.UTC)
    except OverflowError as error:
        raise SqlError(f"{value}: {error}") from None


def clock_in(value: datetime.datetime, place: ZoneInfo) -> datetime.datetime:
    """Return what clocks of a zone show at an instant."""
    try:
        return value.astimezone(place).replace(tzinfo=None, fold=0)
    except OverflowError as error:
        raise SqlError(f"{value}: {error}") from None


_BOOLEANS: Final = {"true": True, "t": True, "yes": True, "y": True, "1": True} | dict.fromkeys(
    ("false", "f", "no", "n", "0"), False
)
_DIGITS: Final = r"[0-9]+(?:_[0-9]+)*"
_NUMBER: Final = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_INFINITE: Final = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE | re.ASCII)
_BASED: Final = re.compile(r"0[xX][0-9a-fA-F]+(?:_[0-9a-fA-F]+)*|0[bB][01]+(?:_[01]+)*")
_SPACES: Final = " \t\n\v\f\r"
_DATE: Final = r"\s*([0-9]{1,5})([-/ \\])([0-9]{1,2})\2([0-9]{1,2})"
_CLOCK: Final = r"([0-9]{1,2}):(?:([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?"
_TIME: Final = re.compile(rf"\s*{_CLOCK}\s*|:)?)?", re.ASCII)
_MOMENT: Final = re.compile(rf"{_DATE}(?:(?:T\s*|\s+){_CLOCK}|:)?)?(?: \s*)?)?", re.ASCII)
_ZONE: Final = re.compile(
    r"([^:]*:[0-9:.]*[0-9.])(?:(Z)|([+-])([0-9]{2})(?::?([0-9]{2}))?(?::([0-9]{2}))?| ([A-Za-z0-9+-][A-Za-z0-9_/+:-]*))\s*",
    re.ASCII | re.DOTALL,
)
_MONTH_AND_DAY: Final = r"([-/ \\])(?:0?[1-9]|1[0-2])\1(?:0?[1-9]|[12][0-9]|3[01])"
_OUT_OF_YEARS: Final = re.compile(
    rf"\s*(?:(?:-[0-9]{{1,7}}|0+|0*[1-9][0-9]{{4,6}}|[0-9]{{1,7}}(?=.* \(BC\))){_MONTH_AND_DAY}(?![0-9])|-?inf(?:inity)?\s*\Z)",
    re.IGNORECASE | re.ASCII,
)


class OutOfYears(SqlError):
    """A text is a moment that no value here is: ``TRY_CAST`` does not make it ``NULL`` either."""


def boolean_of(text: str) -> bool:
    """Return the truth value of a text."""
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise SqlError(f"{brief(text)} is not true or false")
    return value


def _number(text: str, kind: str = "number") -> str:
    number = text.strip(_SPACES)
    if not _NUMBER.fullmatch(number):
        raise SqlError(f"{brief(text)} is not a {kind}")
    return number.replace("_", "")


def _decimal(text: str, kind: str = "number") -> Decimal:
    try:
        return Decimal(_number(text, kind))
    except InvalidOperation:  # an exponent of many digits
        raise SqlError(f"{brief(text)} is too large or too small") from None


def integer_of(text: str) -> int:
    """Return the whole number of a text; others are rounded."""
    if _BASED.fullmatch(text.lstrip(_SPACES)):
        return int(text.lstrip(_SPACES), 0)
    number = _decimal(text, "whole number")
    if number.adjusted() > 100:
        raise SqlError(f"{brief(text)} is too large")
    return int(number.to_integral_value(ROUND_HALF_UP))


def float_of(text: str) -> float:
    infinite = _INFINITE.fullmatch(text.strip(_SPACES))
    if infinite is not None:
        return float(f"{infinite[1]}inf")
    if text.strip(_SPACES).lower() == "nan":
        return NAN
    return float(_number(text)) + 0.0


def decimal_of(text: str) -> Decimal:
    number = _decimal(text)
    if number and not -200 < number.adjusted() < 200:
        raise SqlError(f"{brief(text)} is too large or too small")
    with localcontext(prec=1000):
        return +number


def _moment(text: str, kind: str, example: str) -> datetime.datetime:
    match = _MOMENT.fullmatch(text)
    if text.strip(_SPACES).lower() == "epoch":
        return datetime.datetime(1970, 1, 1)
    if _OUT_OF_YEARS.match(text):
        raise OutOfYears(f"{brief(text)} is not of the years 1 to 9999, the only ones that are supported")
    if match is None:
        raise SqlError(f"{brief(text)} is not a {kind} like {example}")
    year, _, month, day, *clock = match.groups()
    try:
        date = datetime.date(int(year), int(month), int(day))
    except ValueError as error:
        raise SqlError(f"{brief(text)}: {error}") from None
    if clock[0] != "24" or any((part or "").strip("0") for part in clock[1:]):
        return datetime.datetime.combine(date, _clock(clock, text))
    try:
        return datetime.datetime.combine(date + datetime.timedelta(1), datetime.time())
    except OverflowError:
        raise OutOfYears(f"{brief(text)} is in the year 10000: only 1 to 9999 are supported") from None


def _clock(parts: list[str | None], text: str) -> datetime.time:
    hour, minute, second, fraction = (part or "0" for part in parts)
    try:
        return datetime.time(int(hour), int(minute), int(second), int(fraction[:6].ljust(6, "0")))
    except ValueError as error:
        raise SqlError(f"{brief(text)}: {error}") from None


def date_of(text: str) -> datetime.date:
    """Return the date of a text."""
    plain = _without_zone(text)
    return _moment(plain if ":" in plain else plain.rstrip(_SPACES), "date", "2020-01-31").date()


def _without_zone(text: str) -> str:
    zoned = _ZONE.fullmatch(text)
    return text if zoned is None else zoned[1]


def timestamp_of(text: str) -> datetime.datetime:
    """Return the timestamp of a text."""
    return _moment(_without_zone(text), "timestamp", "2020-01-31 12:30:00")


def time_of(text: str) -> datetime.time:
    zoned = _ZONE.fullmatch(text)
    named = zoned is not None and zoned[7] is not None  # which needs a date
    match = None if named else _TIME.fullmatch(_without_zone(text))
    if match is None:
        return _moment(_without_zone(text), "time", "12:30:00").time()
    if match[1] == "24" and not any((part or "").strip("0") for part in match.groups()[1:]):
        raise OutOfYears(f"{brief(text)} is the end of a day, which is no time here: write 00:00:00")
    return _clock(list(match.groups()), text)


def instant_of(text: str) -> datetime.datetime:
    """Return the instant of a text with a zone; without one, that is UTC."""
    match = _ZONE.fullmatch(text)
    if match is None:
        return timestamp_of(text).replace(tzinfo=datetime.UTC)
    moment, _, sign, hours, minutes, seconds, name = match.groups()
    if name is not None:
        return in_zone(timestamp_of(moment), zone(name))
    shift = datetime.timedelta(hours=int(hours or 0), minutes=int(minutes or 0), seconds=int(seconds or 0))
    if shift >= datetime.timedelta(days=1):
        raise SqlError(f"{brief(text)} has no zone like +01:00")
    return to_utc(timestamp_of(moment).replace(tzinfo=datetime.timezone(-shift if sign == "-" else shift)))


def uuid_of(text: str) -> str:
    """Return the text that a UUID is written as."""
    if not re.fullmatch(r"\{?(?:-*[0-9a-fA-F]){32}-*\}?", text) or text.startswith("{") is not text.endswith("}"):
        raise SqlError(f"{brief(text)} is no UUID")
    return str(uuid.UUID(re.sub("[-{}]", "", text)))


def blob_of(text: str) -> bytes:
    r"""Return the bytes of a text, in which ``\xAA`` is one byte."""
    if not re.fullmatch(r"([^\\]|\\x[0-9a-fA-F]{2})*", text, re.DOTALL) or not text.isascii():
        raise SqlError(f"{brief(text)} is no BLOB: bytes beyond ASCII, and the backslash, are written \\xAA")
    return re.sub(r"\\x(..)", lambda byte: chr(int(byte[1], 16)), text).encode("latin-1")
