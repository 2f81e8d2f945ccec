"""Functions of dates, times, timestamps and intervals, as DuckDB defines them. Instants are taken apart in UTC."""

from __future__ import annotations

import calendar
import datetime
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlglot import exp

from timely.differential.tables.values import scalars
from timely.differential.tables.values.kinds import Kind, start_of_day
from timely.differential.tables.values.number_functions import round_whole
from timely.differential.tables.values.overloads import Overload, Rule, SqlFunction, overload
from timely.differential.tables.values.zones import clock_in, in_zone, zone
from timely.errors import SqlError, brief

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)

_DATE, _TIME, _STAMP, _INSTANT, _SPAN = Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.INSTANT, Kind.INTERVAL
_INT, _TEXT, _FLOAT = Kind.INTEGER, Kind.TEXT, Kind.DOUBLE


def naive(value: datetime.date) -> datetime.datetime:
    """Return a date, timestamp or instant as a timestamp of UTC without a zone."""
    return value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else start_of_day(value)


def like(value: datetime.date, found: datetime.datetime) -> datetime.datetime:
    """Return a timestamp with the zone of ``value``."""
    zone = value.tzinfo if isinstance(value, datetime.datetime) else None
    return found if zone is None else found.replace(tzinfo=zone)


# -- intervals -----------------------------------------------------------------------------------------------------

UNITS: Final = {
    "YEAR": (12, 0),
    "QUARTER": (3, 0),
    "MONTH": (1, 0),
    "WEEK": (0, 7 * 86_400_000_000),
    "DAY": (0, 86_400_000_000),
    "HOUR": (0, 3_600_000_000),
    "MINUTE": (0, 60_000_000),
    "SECOND": (0, 1_000_000),
    "MILLISECOND": (0, 1000),
    "MICROSECOND": (0, 1),
}
"""Months and microseconds of each unit of an interval."""


def unit_of(name: str) -> str | None:
    """Return a unit by any of its names.

    >>> unit_of("days"), unit_of("min"), unit_of("fortnight")
    ('DAY', 'MINUTE', None)
    """
    upper = name.upper()
    found = _SHORT.get(upper) or _SHORT.get(upper.rstrip("S")) or upper.rstrip("S")
    return found if found in UNITS else None


_SHORT: Final = {
    "Y": "YEAR",
    "YR": "YEAR",
    "MON": "MONTH",
    "W": "WEEK",
    "D": "DAY",
    "H": "HOUR",
    "HR": "HOUR",
    "M": "MINUTE",
    "MIN": "MINUTE",
    "S": "SECOND",
    "SEC": "SECOND",
    "MS": "MILLISECOND",
    "US": "MICROSECOND",
}


def interval_of(text: str, unit: str = "") -> tuple[int, datetime.timedelta]:
    """Return the months and the duration of an interval such as ``1 hour 30 minutes``, or ``90`` with a unit.

    >>> interval_of("1 month -3 days"), interval_of("90", "MINUTES")
    ((1, datetime.timedelta(days=-3)), (0, datetime.timedelta(seconds=5400)))
    """
    given = f"{text} {unit}".strip()
    if not re.fullmatch(r"\s*([+-]?[0-9]+\s*[A-Za-z]+\s*)+", given):
        raise SqlError(f"{brief(given)} is not an interval like 90 minutes: it has whole numbers, each with a unit")
    months, microseconds = 0, 0
    for count, name in re.findall(r"([+-]?[0-9]+)\s*([A-Za-z]+)", given):
        found = unit_of(name)
        if found is None:
            raise SqlError(f"{brief(name)} is no unit of an interval: {', '.join(UNITS).lower()} are")
        months += int(count) * UNITS[found][0]
        microseconds += int(count) * UNITS[found][1]
    return months, duration(microseconds)


def duration(microseconds: int) -> datetime.timedelta:
    """Return the interval of some microseconds; ``SqlError`` for what is too long."""
    try:
        return datetime.timedelta(microseconds=microseconds)
    except OverflowError as error:
        raise SqlError(f"an interval of {microseconds} microseconds: {error}") from None


def add_interval(value: datetime.date, months: int, delta: datetime.timedelta) -> datetime.datetime:
    """Return a date or timestamp moved by months, which keep the day where they have it, and by a duration.

    >>> add_interval(datetime.date(2020, 1, 31), 1, datetime.timedelta())
    datetime.datetime(2020, 2, 29, 0, 0)
    """
    moment = value if isinstance(value, datetime.datetime) else start_of_day(value)
    try:
        if months:
            year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
            day = min(moment.day, calendar.monthrange(year, month + 1)[1])
            moment = moment.replace(year=year, month=month + 1, day=day)
        return moment + delta
    except (OverflowError, ValueError) as error:
        raise SqlError(f"{value} and an interval: {error}") from None


def add_to_time(value: datetime.time, delta: datetime.timedelta) -> datetime.time:
    """Return a time of day moved by a duration, around midnight.

    >>> add_to_time(datetime.time(23), datetime.timedelta(hours=2))
    datetime.time(1, 0)
    """
    moment = datetime.datetime.combine(datetime.date(2000, 1, 1), value)
    return (moment + datetime.timedelta(microseconds=delta // _MICROSECOND % UNITS["DAY"][1])).time()


def add_days(value: datetime.date, days: int) -> datetime.date:
    """Return a date some days later."""
    try:
        return value + datetime.timedelta(days=days)
    except OverflowError as error:
        raise SqlError(f"{value} + {days} days: {error}") from None


def at_time(day: datetime.date, time: datetime.time) -> datetime.datetime:
    """Return the timestamp of a date and a time of day."""
    return datetime.datetime.combine(day, time)


def add_durations(one: datetime.timedelta, other: datetime.timedelta) -> datetime.timedelta:
    """Return the sum of intervals."""
    return duration((one // _MICROSECOND) + (other // _MICROSECOND))


def multiply_duration(value: datetime.timedelta, factor: int) -> datetime.timedelta:
    """Return an interval several times."""
    return duration(value // _MICROSECOND * factor)


# -- beginnings ----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=100)
def truncated(name: str) -> Callable[[datetime.date], datetime.datetime]:
    """Return what gives the beginning of the unit of a date or timestamp.

    >>> truncated("hour")(datetime.datetime(2024, 2, 29, 10, 30))
    datetime.datetime(2024, 2, 29, 10, 0)
    """
    unit = unit_of(name) or name.upper()

    def start(value: datetime.date) -> datetime.datetime:
        moment = naive(value)
        if unit == "WEEK":
            return like(value, start_of_day(moment.date() - datetime.timedelta(days=moment.weekday())))
        if unit == "DECADE":
            return like(value, start_of_day(_date(moment.year // 10 * 10, 1, 1)))
        if unit == "QUARTER":
            return like(value, datetime.datetime(moment.year, moment.month - (moment.month - 1) % 3, 1))
        if unit in ("MILLISECOND", "MICROSECOND"):
            step = 1000 if unit == "MILLISECOND" else 1
            return like(value, moment.replace(microsecond=moment.microsecond // step * step))
        kept = _PARTS.index(unit) + 1
        parts = [moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second][:kept]
        year, month, day, hour, minute, second = [*parts, *(1, 1, 1, 0, 0, 0)[kept:]]
        return like(value, datetime.datetime(year, month, day, hour, minute, second))

    if unit not in (*UNITS, "DECADE"):
        raise SqlError(f"{brief(name)} is no unit of date_trunc: decades, and {', '.join(UNITS).lower()} are")
    return start


_PARTS: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")

_MONDAY: Final = datetime.datetime(2000, 1, 3)
_JANUARY: Final = datetime.datetime(2000, 1, 1)


def bucket(months: int, delta: datetime.timedelta) -> Callable[..., Any]:
    """Return what gives the beginning of the stretch of time that a moment is in: of months, or of a duration.

    Stretches begin at ``origin``, by default 2000-01-03, a Monday; those of months in its month.

    >>> bucket(0, datetime.timedelta(minutes=10))(datetime.datetime(2024, 1, 1, 10, 12))
    datetime.datetime(2024, 1, 1, 10, 10)
    """
    if months and delta:
        raise SqlError("a stretch of time of months has no days or shorter units")
    if months < 0 or delta < datetime.timedelta() or not (months or delta):
        raise SqlError("a stretch of time is longer than nothing")

    def start(value: datetime.date, origin: datetime.date | None = None) -> Any:
        moment = naive(value)
        try:
            if months:
                first = (_JANUARY if origin is None else naive(origin)).replace(day=1)
                passed = (moment.year - first.year) * 12 + moment.month - first.month
                found = add_interval(start_of_day(first), passed // months * months, datetime.timedelta())
            else:
                first = _MONDAY if origin is None else naive(origin)
                found = moment - (moment - first) % delta
        except OverflowError as error:
            raise SqlError(f"{value}: {error}") from None
        return like(value, found) if isinstance(value, datetime.datetime) else found.date()

    return start


# -- parts ---------------------------------------------------------------------------------------------------------


def _hour(value: Any) -> int:
    return value.hour if isinstance(value, datetime.datetime | datetime.time) else 0


def _minute(value: Any) -> int:
    return value.minute if isinstance(value, datetime.datetime | datetime.time) else 0


def _microsecond(value: Any) -> int:
    return value.second * 1_000_000 + value.microsecond if isinstance(value, datetime.datetime | datetime.time) else 0


DAY_PARTS: Final[dict[str, Callable[[Any], int]]] = {
    "YEAR": lambda value: value.year,
    "MONTH": lambda value: value.month,
    "DAY": lambda value: value.day,
    "QUARTER": lambda value: (value.month - 1) // 3 + 1,
    "WEEK": lambda value: value.isocalendar()[1],
    "DOW": lambda value: value.isoweekday() % 7,
    "ISODOW": lambda value: value.isoweekday(),
    "DOY": lambda value: value.timetuple().tm_yday,
    "ISOYEAR": lambda value: value.isocalendar()[0],
    "YEARWEEK": lambda value: value.isocalendar()[0] * 100 + value.isocalendar()[1],
    "DECADE": lambda value: value.year // 10,
    "CENTURY": lambda value: (value.year - 1) // 100 + 1,
    "MILLENNIUM": lambda value: (value.year - 1) // 1000 + 1,
}
"""Parts of a date or timestamp."""

CLOCK_PARTS: Final[dict[str, Callable[[Any], int]]] = {
    "HOUR": _hour,
    "MINUTE": _minute,
    "SECOND": lambda value: _microsecond(value) // 1_000_000,
    "MILLISECOND": lambda value: _microsecond(value) // 1000,
    "MICROSECOND": _microsecond,
}
"""Parts of a time, and of what has one."""

_SYNONYMS: Final = {"DAYOFWEEK": "DOW", "DAYOFYEAR": "DOY", "WEEKOFYEAR": "WEEK", "DAYOFMONTH": "DAY", "WEEKDAY": "DOW"}


def part(name: str, kind: Kind) -> Overload | None:
    """Return what takes a part out of a value of ``kind``, such as ``YEAR`` or ``EPOCH``; ``None`` where it has none.

    >>> part("DOW", Kind.DATE).f(datetime.date(2024, 2, 4))
    0
    """
    name = _SYNONYMS.get(name, name)
    name = unit_of(name) or name
    if name == "EPOCH" and kind in (_DATE, _STAMP, _INSTANT, _SPAN):
        return overload(_seconds, _FLOAT, kind)
    f = (DAY_PARTS.get(name) if kind in (_DATE, _STAMP, _INSTANT) else None) or (
        CLOCK_PARTS.get(name) if kind in (_DATE, _TIME, _STAMP, _INSTANT) else None
    )
    return None if f is None else overload(f, _INT, kind)


def _seconds(value: datetime.date | datetime.timedelta) -> float:
    return _microseconds(value) / 1_000_000


def _microseconds(value: datetime.date | datetime.timedelta) -> int:
    passed = value if isinstance(value, datetime.timedelta) else naive(value) - _EPOCH
    return passed // _MICROSECOND


def _from_epoch(scale: int, zone: bool) -> Callable[[Any], datetime.datetime]:
    """Return what makes the moment some units after 1970 a timestamp, or an instant; ``scale`` microseconds are a unit."""

    def moment(value: float) -> datetime.datetime:
        try:
            found = _EPOCH + datetime.timedelta(microseconds=round(value * scale))
        except (OverflowError, ValueError) as error:
            raise SqlError(f"{value} after 1970: {error}") from None
        return found.replace(tzinfo=datetime.UTC) if zone else found

    return moment


# -- differences ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=100)
def boundaries(name: str) -> Callable[[datetime.date, datetime.date], int]:
    """Return what counts the beginnings of a unit between two moments; weeks are seven days.

    >>> boundaries("month")(datetime.date(2024, 1, 31), datetime.date(2024, 2, 1))
    1
    """
    unit = unit_of(name) or name.upper()
    if unit in ("YEAR", "QUARTER", "MONTH", "DECADE"):
        months = {"YEAR": 12, "QUARTER": 3, "MONTH": 1, "DECADE": 120}[unit]
        return lambda one, other: (other.year * 12 + other.month - 1) // months - (one.year * 12 + one.month - 1) // months
    if unit not in UNITS:
        raise SqlError(f"{brief(name)} is no unit of date_diff: decades, and {', '.join(UNITS).lower()} are")
    step = UNITS["DAY" if unit == "WEEK" else unit][1]

    def count(one: datetime.date, other: datetime.date) -> int:
        passed = _microseconds(other) // step - _microseconds(one) // step
        return scalars.quotient(passed, 7) if unit == "WEEK" else passed

    return count


# -- formats -------------------------------------------------------------------------------------------------------

_DAYS: Final[tuple[str, ...]] = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final[tuple[str, ...]] = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

_NAMES: Final[dict[str, Callable[[datetime.datetime], str]]] = {
    "Y": lambda value: f"{value.year:04d}",
    "y": lambda value: f"{value.year % 100:02d}",
    "m": lambda value: f"{value.month:02d}",
    "d": lambda value: f"{value.day:02d}",
    "H": lambda value: f"{value.hour:02d}",
    "I": lambda value: f"{(value.hour - 1) % 12 + 1:02d}",
    "M": lambda value: f"{value.minute:02d}",
    "S": lambda value: f"{value.second:02d}",
    "f": lambda value: f"{value.microsecond:06d}",
    "g": lambda value: f"{value.microsecond // 1000:03d}",
    "j": lambda value: f"{value.timetuple().tm_yday:03d}",
    "p": lambda value: "PM" if value.hour >= 12 else "AM",
    "a": lambda value: _DAYS[value.weekday()][:3],
    "A": lambda value: _DAYS[value.weekday()],
    "b": lambda value: _MONTHS[value.month - 1][:3],
    "B": lambda value: _MONTHS[value.month - 1],
    "u": lambda value: str(value.isoweekday()),
    "w": lambda value: str(value.isoweekday() % 7),
    "G": lambda value: f"{value.isocalendar()[0]:04d}",
    "V": lambda value: f"{value.isocalendar()[1]:02d}",
    "-d": lambda value: str(value.day),
    "-m": lambda value: str(value.month),
    "-H": lambda value: str(value.hour),
    "-I": lambda value: str((value.hour - 1) % 12 + 1),
    "-M": lambda value: str(value.minute),
    "-S": lambda value: str(value.second),
    "-j": lambda value: str(value.timetuple().tm_yday),
    "-y": lambda value: str(value.year % 100),
    "%": lambda value: "%",
}


@functools.lru_cache(maxsize=1000)
def _format(text: str) -> tuple[str | Callable[[datetime.datetime], str], ...]:
    found: list[str | Callable[[datetime.datetime], str]] = []
    for literal, directive in re.findall(r"([^%]+)|%(-?.|$)", text, re.DOTALL):
        if literal:
            found.append(literal)
        elif directive in _NAMES:
            found.append(_NAMES[directive])
        else:
            raise SqlError(f"%{directive} in the format {brief(text)} is not supported")
    return tuple(found)


def strftime(value: datetime.date, format: str) -> str:
    """Return a date or timestamp in a format.

    >>> strftime(datetime.datetime(2024, 2, 3, 16, 5), "%d.%m.%Y %I:%M %p, %A")
    '03.02.2024 04:05 PM, Saturday'
    """
    moment = naive(value)
    return "".join(item if isinstance(item, str) else item(moment) for item in _format(format))


@functools.lru_cache(maxsize=1000)
def _check_parsed(format: str) -> None:
    directives = re.findall(r"%(-?.|$)", format, re.DOTALL)
    for directive in directives:
        if directive not in ("Y", "m", "d", "H", "M", "S", "b", "B", "y", "j", "f", "%"):
            raise SqlError(f"%{directive} in the format {brief(format)} is not supported")
        if directive != "%" and directives.count(directive) > 1:
            raise SqlError(f"%{directive} is in the format {brief(format)} twice")


def _strptime(text: str, format: str) -> datetime.datetime:
    _check_parsed(format)
    try:
        return datetime.datetime.strptime(text, format)
    except ValueError as error:
        raise SqlError(str(error)) from None


def _last_day(value: datetime.date) -> datetime.date:
    return datetime.date(value.year, value.month, calendar.monthrange(value.year, value.month)[1])


def _date(year: int, month: int, day: int) -> datetime.date:
    try:
        return datetime.date(year, month, day)
    except (ValueError, OverflowError) as error:
        raise SqlError(f"{year}-{month}-{day}: {error}") from None


# -- what there is -------------------------------------------------------------------------------------------------


def _of_moments(f: Callable[..., Any], result: Kind, *more: Kind) -> tuple[Rule, ...]:
    return tuple(overload(f, result, kind, *more) for kind in (_DATE, _STAMP, _INSTANT))


def _part_of(name: str) -> SqlFunction:
    return SqlFunction(("this",), (lambda kinds: part(name, kinds[0]),))


def _to_zone(kinds: Sequence[Kind]) -> Overload | None:
    if kinds[0] is _INSTANT:
        return overload(clock_in, _STAMP, _INSTANT, _TEXT)
    return overload(lambda value, name: in_zone(naive(value), name), _INSTANT, _STAMP, _TEXT)


def _span(unit: str) -> tuple[Rule, ...]:
    step = UNITS[unit][1]
    return (overload(lambda count: duration(count * step), _SPAN, _INT),)


MOMENT_FUNCTIONS: Final[dict[Any, SqlFunction]] = {
    exp.Year: _part_of("YEAR"),
    exp.Month: _part_of("MONTH"),
    exp.Day: _part_of("DAY"),
    exp.Quarter: _part_of("QUARTER"),
    exp.Week: _part_of("WEEK"),
    exp.WeekOfYear: _part_of("WEEK"),
    exp.DayOfWeek: _part_of("DOW"),
    exp.DayOfWeekIso: _part_of("ISODOW"),
    exp.DayOfMonth: _part_of("DAY"),
    exp.DayOfYear: _part_of("DOY"),
    exp.Hour: _part_of("HOUR"),
    exp.Minute: _part_of("MINUTE"),
    exp.Second: _part_of("SECOND"),
    exp.TimeToUnix: _part_of("EPOCH"),
    exp.TimeToStr: SqlFunction(("this", "format"), _of_moments(strftime, _TEXT, _TEXT), checks={1: _format}),
    exp.StrToTime: SqlFunction(("this", "format"), (overload(_strptime, _STAMP, _TEXT, _TEXT),), checks={1: _check_parsed}),
    exp.LastDay: SqlFunction(("this",), _of_moments(_last_day, _DATE)),
    exp.Dayname: SqlFunction(("this",), _of_moments(lambda value: _DAYS[value.weekday()], _TEXT)),
    exp.Monthname: SqlFunction(("this",), _of_moments(lambda value: _MONTHS[value.month - 1], _TEXT)),
    exp.DateFromParts: SqlFunction(("year", "month", "day"), (overload(_date, _DATE, _INT, _INT, _INT),)),
    exp.AtTimeZone: SqlFunction(("this", "zone"), (_to_zone,), checks={1: zone}),
    exp.ToDays: SqlFunction(("this",), _span("DAY")),
}
"""The functions that sqlglot has a node for, and that need no unit."""

NAMED_MOMENT_FUNCTIONS: Final[dict[str, tuple[Rule, ...]]] = {
    "to_weeks": _span("WEEK"),
    "to_hours": _span("HOUR"),
    "to_minutes": _span("MINUTE"),
    "to_seconds": _span("SECOND"),
    "to_milliseconds": _span("MILLISECOND"),
    "to_microseconds": _span("MICROSECOND"),
    "epoch_us": _of_moments(_microseconds, _INT),
    "isoyear": (lambda kinds: part("ISOYEAR", kinds[0]),),
    "yearweek": (lambda kinds: part("YEARWEEK", kinds[0]),),
    "decade": (lambda kinds: part("DECADE", kinds[0]),),
    "century": (lambda kinds: part("CENTURY", kinds[0]),),
    "millisecond": (lambda kinds: part("MILLISECOND", kinds[0]),),
    "microsecond": (lambda kinds: part("MICROSECOND", kinds[0]),),
}
"""The others, by name."""


def of_epoch(scale: int | None, kind: Kind) -> Overload | None:
    """Return what ``to_timestamp``, ``epoch_ms`` and ``make_timestamp`` do: ``scale`` digits of a second are the unit.

    >>> of_epoch(3, Kind.DATE).f(datetime.date(1970, 1, 2))
    86400000
    """
    if scale is None:
        return overload(_from_epoch(1_000_000, True), _INSTANT, _FLOAT)
    if kind in (_DATE, _STAMP, _INSTANT):
        return overload(lambda value: round_whole(_microseconds(value), scale - 6) // 10 ** (6 - scale), _INT, kind)
    return overload(_from_epoch(10 ** (6 - scale), False), _STAMP, _INT)
