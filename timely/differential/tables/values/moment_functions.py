"""Functions of dates, times, timestamps and intervals, as DuckDB defines them. Instants are taken apart in UTC."""

from __future__ import annotations

import calendar
import datetime
import functools
import operator
import re
from collections.abc import Callable
from typing import Any, Final

import attrs

from timely.differential.tables.values import scalars
from timely.differential.tables.values.kinds import MOMENTS, Kind, start_of_day
from timely.differential.tables.values.number_functions import round_float, round_whole
from timely.differential.tables.values.overloads import Arguments, Overload, Rule, SqlFunction, named, overload, taking
from timely.differential.tables.values.parsing import OutOfYears, clock_in, in_zone, zone
from timely.errors import SqlError, brief

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)

_DATE, _TIME, _STAMP, _INSTANT, _SPAN = Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.INSTANT, Kind.INTERVAL
_INT, _TEXT, _FLOAT = Kind.INTEGER, Kind.TEXT, Kind.DOUBLE


def naive(value: datetime.date) -> datetime.datetime:
    """Return a date, timestamp or instant as a timestamp of UTC without a zone."""
    return value.replace(tzinfo=None) if isinstance(value, datetime.datetime) else start_of_day(value)


def like(value: datetime.date, moment: datetime.datetime) -> datetime.datetime:
    """Return a timestamp with the zone of ``value``."""
    zone = value.tzinfo if isinstance(value, datetime.datetime) else None
    return moment if zone is None else moment.replace(tzinfo=zone)


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
    """Return a unit by any of its names."""
    upper = name.upper()
    unit = _SHORT.get(upper) or _SHORT.get(upper.rstrip("S")) or upper.rstrip("S")
    return unit if unit in UNITS else None


_NAMED: Final = ("YEAR Y YR", "MONTH MON", "WEEK W", "DAY D", "HOUR H HR", "MINUTE M MIN", "SECOND S SEC", "MILLISECOND MS")
_SHORT: Final = {short: unit for unit, *names in map(str.split, (*_NAMED, "MICROSECOND US")) for short in names}


def interval_of(text: str, unit: str = "") -> tuple[int, datetime.timedelta]:
    """Return the months and the duration of an interval such as ``1 hour 30 minutes``, or ``90`` with a unit."""
    interval = f"{text} {unit}".strip()
    if not re.fullmatch(r"\s*([+-]?[0-9]+\s*[A-Za-z]+\s*)+", interval):
        raise SqlError(f"{brief(interval)} is not an interval like 90 minutes: it has whole numbers, each with a unit")
    months, microseconds = 0, 0
    for count, name in re.findall(r"([+-]?[0-9]+)\s*([A-Za-z]+)", interval):
        known = unit_of(name)
        if known is None:
            raise SqlError(f"{brief(name)} is no unit of an interval: {', '.join(UNITS).lower()} are")
        months += int(count) * UNITS[known][0]
        microseconds += int(count) * UNITS[known][1]
    return months, duration(microseconds)


def duration(microseconds: int) -> datetime.timedelta:
    """Return the interval of some microseconds; ``SqlError`` for what is too long."""
    try:
        return datetime.timedelta(microseconds=microseconds)
    except OverflowError as error:
        raise SqlError(f"an interval of {microseconds} microseconds: {error}") from None


def add_interval(value: datetime.date, months: int, delta: datetime.timedelta) -> datetime.datetime:
    """Return a date or timestamp moved by months, which keep the day where they have it, and by a duration."""
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
    """Return a time of day moved by a duration, around midnight."""
    moment = datetime.datetime.combine(datetime.date(2000, 1, 1), value)
    return (moment + datetime.timedelta(microseconds=delta // _MICROSECOND % UNITS["DAY"][1])).time()


def add_days(value: datetime.date, days: int) -> datetime.date:
    """Return a date some days later."""
    try:
        return value + datetime.timedelta(days=days)
    except OverflowError as error:
        raise SqlError(f"{value} + {days} days: {error}") from None


def add_durations(one: datetime.timedelta, other: datetime.timedelta) -> datetime.timedelta:
    """Return the sum of intervals."""
    return duration((one // _MICROSECOND) + (other // _MICROSECOND))


def multiply_duration(value: datetime.timedelta, factor: int) -> datetime.timedelta:
    """Return an interval several times."""
    return duration(value // _MICROSECOND * factor)


# -- beginnings ----------------------------------------------------------------------------------------------------


MONDAY: Final = datetime.datetime(2000, 1, 3)
_JANUARY: Final = datetime.datetime(2000, 1, 1)


def bucket(months: int, delta: datetime.timedelta) -> Callable[..., Any]:
    """Return what gives the beginning of the stretch of time that a moment is in: of months, or of a duration.

    Stretches begin at ``origin``, by default 2000-01-03, a Monday; those of months in its month.
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
                begin = add_interval(start_of_day(first), passed // months * months, datetime.timedelta())
            else:
                first = MONDAY if origin is None else naive(origin)
                begin = moment - (moment - first) % delta
        except OverflowError as error:
            raise SqlError(f"{value}: {error}") from None
        return like(value, begin) if isinstance(value, datetime.datetime) else begin.date()

    return start


_LONG: Final = {**UNITS, "DECADE": (120, 0), "CENTURY": (1200, 0), "MILLENNIUM": (12000, 0)}
"""Months and microseconds of each unit of a moment; no interval has the longest."""


def _length(name: str, function: str) -> tuple[int, int]:
    length = _LONG.get(unit_of(name) or name.upper())
    if length is None:
        raise SqlError(f"{brief(name)} is no unit of {function}: {', '.join(_LONG).lower()} are")
    return length


@functools.lru_cache(maxsize=100)
def truncated(name: str) -> Callable[[datetime.date], datetime.datetime]:
    """Return what gives the beginning of the unit of a date or timestamp."""
    months, step = _length(name, "date_trunc")
    start = bucket(months, duration(step))
    return lambda value: like(value, start(naive(value)))


# -- parts ---------------------------------------------------------------------------------------------------------


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
    "ERA": lambda value: 1,
}
"""Parts of a date or timestamp."""

CLOCK_PARTS: Final[dict[str, Callable[[Any], int]]] = {
    "HOUR": lambda value: getattr(value, "hour", 0),
    "MINUTE": lambda value: getattr(value, "minute", 0),
    "SECOND": lambda value: _microsecond(value) // 1_000_000,
    "MILLISECOND": lambda value: _microsecond(value) // 1000,
    "MICROSECOND": _microsecond,
    "NANOSECOND": lambda value: _microsecond(value) * 1000,
}
"""Parts of a time, and of what has one."""

_SYNONYMS: Final = {"DAYOFWEEK": "DOW", "DAYOFYEAR": "DOY", "WEEKOFYEAR": "WEEK", "DAYOFMONTH": "DAY", "WEEKDAY": "DOW"}


def part(name: str, kind: Kind) -> Overload | None:
    """Return what takes a part out of a value of ``kind``, such as ``YEAR`` or ``EPOCH``; ``None`` where it has none."""
    name = _SYNONYMS.get(name, name)
    name = unit_of(name) or name
    if name == "EPOCH" and kind in (*MOMENTS, _SPAN):
        return overload(lambda value: _microseconds(value) / 1_000_000, _FLOAT, kind)
    f = (DAY_PARTS.get(name) if kind in (_DATE, _STAMP, _INSTANT) else None) or (
        CLOCK_PARTS.get(name) if kind in (_DATE, _TIME, _STAMP, _INSTANT) else None
    )
    return None if f is None else overload(f, _INT, kind)


def _microseconds(value: datetime.date | datetime.timedelta) -> int:
    passed = value if isinstance(value, datetime.timedelta) else naive(value) - _EPOCH
    return passed // _MICROSECOND


def _from_epoch(scale: int, zone: bool) -> Callable[[Any], datetime.datetime]:
    """Return what makes the moment some units after 1970 a timestamp, or an instant; ``scale`` microseconds are a unit."""

    def moment(value: float) -> datetime.datetime:
        try:
            stamp = _EPOCH + datetime.timedelta(microseconds=round(value * scale))
        except (OverflowError, ValueError) as error:
            raise SqlError(f"{value} after 1970: {error}") from None
        return stamp.replace(tzinfo=datetime.UTC) if zone else stamp

    return moment


# -- differences ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=100)
def boundaries(name: str) -> Callable[[datetime.date, datetime.date], int]:
    """Return what counts the beginnings of a unit between two moments; weeks are seven days."""
    months, step = _length(name, "date_diff")
    if months:
        return lambda one, other: (other.year * 12 + other.month - 1) // months - (one.year * 12 + one.month - 1) // months
    is_week = step == UNITS["WEEK"][1]
    step = UNITS["DAY"][1] if is_week else step

    def count(one: datetime.date, other: datetime.date) -> int:
        passed = _microseconds(other) // step - _microseconds(one) // step
        return scalars.quotient(passed, 7) if is_week else passed

    return count


@functools.lru_cache(maxsize=100)
def whole_units(name: str) -> Callable[[datetime.date, datetime.date], int]:
    """Return what counts the whole units that lie between two moments."""
    months, step = _length(name, "date_sub")

    def count(one: datetime.date, other: datetime.date) -> int:
        start, end = naive(one), naive(other)
        if start > end:
            return -count(end, start)
        if not months:
            return (end - start) // _MICROSECOND // step
        if end.day == calendar.monthrange(end.year, end.month)[1]:
            start = start.replace(day=min(start.day, end.day))
        passed = (end.year - start.year) * 12 + end.month - start.month
        return (passed - ((end.day, end.time()) < (start.day, start.time()))) // months

    return count


# -- formats -------------------------------------------------------------------------------------------------------

_DAYS: Final[tuple[str, ...]] = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final[tuple[str, ...]] = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def _without_zeros(directive: str, value: datetime.datetime) -> str:
    return value.strftime(directive).lstrip("0") or "0"


_NAMES: Final[dict[str, Callable[[datetime.datetime], str]]] = {
    "Y": lambda value: f"{value.year:04d}",
    "y": lambda value: f"{value.year % 100:02d}",
    "g": lambda value: f"{value.microsecond // 1000:03d}",
    "p": lambda value: "PM" if value.hour >= 12 else "AM",
    "a": lambda value: _DAYS[value.weekday()][:3],
    "A": lambda value: _DAYS[value.weekday()],
    "b": lambda value: _MONTHS[value.month - 1][:3],
    "B": lambda value: _MONTHS[value.month - 1],
    "G": lambda value: f"{value.isocalendar()[0]:04d}",
    "-y": lambda value: str(value.year % 100),
    "%": lambda value: "%",
    **{name: operator.methodcaller("strftime", f"%{name}") for name in "mdHIMSfjuwV"},
    **{f"-{name}": functools.partial(_without_zeros, f"%{name}") for name in "dmHIMSj"},
}


@functools.lru_cache(maxsize=1000)
def _format(text: str) -> tuple[str | Callable[[datetime.datetime], str], ...]:
    items: list[str | Callable[[datetime.datetime], str]] = []
    for literal, directive in re.findall(r"([^%]+)|%(-?.|$)", text, re.DOTALL):
        if literal:
            items.append(literal)
        elif directive in _NAMES:
            items.append(_NAMES[directive])
        else:
            raise SqlError(f"%{directive} in the format {brief(text)} is not supported")
    return tuple(items)


def _strftime(value: datetime.date, format: tuple[str | Callable[[datetime.datetime], str], ...]) -> str:
    moment = naive(value)
    return "".join(item if isinstance(item, str) else item(moment) for item in format)


_SPACES: Final = "[ \\t\\n\\v\\f\\r]"
_PARSED: Final = {
    "Y": r"(?P<Y>[0-9]{1,4}+)",
    "f": r"(?P<f>[0-9]{1,6}+)",
    "j": r"(?P<j>[0-9]{1,3}+)",
    **{name: f"(?P<{name}>[0-9]{{1,2}}+)" for name in "ymdHIMS"},
    "b": f"(?P<b>(?i:{'|'.join(name[:3] for name in _MONTHS)}))",
    "B": f"(?P<B>(?i:{'|'.join(_MONTHS)}))",
    "p": "(?P<p>(?i:AM|PM))",
    "%": "%",
}


@functools.lru_cache(maxsize=1000)
def _parsed_format(format: str) -> re.Pattern[str]:
    """Return the pattern of texts of a format; ``SqlError`` for other formats."""
    parts = re.findall(r"%(-?.|$)|([ \t\n\v\f\r]+)|([^%])", format, re.DOTALL)
    directives = [directive for directive, space, letter in parts if not space and not letter]
    for directive in directives:
        if directive not in _PARSED:
            raise SqlError(f"%{directive} in the format {brief(format)} is not supported")
        if directive != "%" and directives.count(directive) > 1:
            raise SqlError(f"%{directive} is in the format {brief(format)} twice")
    for one, others in (("j", "mdbB"), ("I", "H"), ("H", "p"), ("Y", "y"), ("b", "mB"), ("m", "B")):
        for other in others:
            if one in directives and other in directives:
                raise SqlError(f"%{one} and %{other} in the format {brief(format)} are not supported together")
    if not parts or parts[0][1] or parts[-1][1]:
        raise SqlError(f"the format {brief(format)} begins or ends with nothing but spaces")
    pattern = "".join(
        f"{_SPACES}+" if space else re.escape(letter) if letter else _PARSED[directive] for directive, space, letter in parts
    )
    return re.compile(f"{_SPACES}*(?:{pattern}){_SPACES}*")


def _strptime(text: str, format: re.Pattern[str]) -> datetime.datetime:
    match = format.fullmatch(text)
    if match is None:
        raise SqlError(f"{brief(text)} is not of the format")
    parts: dict[str, str] = match.groupdict()
    name = (parts.get("b") or parts.get("B") or "Jan")[:3].title()
    named = next(number for number, month in enumerate(_MONTHS, 1) if month.startswith(name))
    short = int(parts.get("y", 0))
    year = int(parts.get("Y", 1900 if "y" not in parts else 2000 + short if short < 69 else 1900 + short))
    hour = int(parts.get("H", 0))
    if "I" in parts:
        hour = int(parts["I"])
        if not 1 <= hour <= 12:
            raise SqlError(f"{brief(text)} has no hour of 1 to 12")
    if "p" in parts:
        hour = hour % 12 + 12 * (parts["p"].upper() == "PM")
    try:
        moment = datetime.datetime(
            year,
            int(parts.get("m", named)),
            int(parts.get("d", 1)),
            hour,
            int(parts.get("M", 0)),
            int(parts.get("S", 0)),
            int(parts.get("f", "0").ljust(6, "0")),
        )
        moved = moment + datetime.timedelta(days=int(parts.get("j", 1)) - 1)
    except (OverflowError, ValueError) as error:
        raise (OutOfYears if year == 0 else SqlError)(f"{brief(text)}: {error}") from None
    if moved.year != year:
        raise SqlError(f"{brief(text)} has no such day in {year}")
    return moved


def _try_strptime(text: str, format: re.Pattern[str]) -> datetime.datetime | None:
    try:
        return _strptime(text, format)
    except OutOfYears:
        raise
    except SqlError:
        return None


def _last_day(value: datetime.date) -> datetime.date:
    return _date(value.year, value.month, calendar.monthrange(value.year, value.month)[1])


def _date(year: int, month: int, day: int) -> datetime.date:
    try:
        return datetime.date(year, month, day)
    except (ValueError, OverflowError) as error:
        raise SqlError(f"{year}-{month}-{day}: {error}") from None


def _timestamp(year: int, month: int, day: int, hour: int, minute: int, second: float) -> datetime.datetime:
    if not (0 <= hour <= 24 and 0 <= minute < 60 and 0 <= second <= 60) or (hour == 24 and (minute or second)):
        raise SqlError(f"{hour}:{minute}:{second} is no time of a day")
    passed = datetime.timedelta(hours=hour, minutes=minute, microseconds=int(round_float(second * 1e6)))
    return add_interval(_date(year, month, day), 0, passed)


def _instant(*parts: Any) -> datetime.datetime:
    *numbers, place = (*parts, datetime.UTC)[:7]
    return in_zone(_timestamp(*numbers), place)


def _clock(hour: int, minute: int, second: float) -> datetime.time:
    moment = _timestamp(1970, 1, 1, hour, minute, second)
    if moment.day > 1:
        raise SqlError(f"{hour}:{minute}:{second} is no time of a day")
    return moment.time()


# -- what there is -------------------------------------------------------------------------------------------------


def _of_moments(f: Callable[..., Any], result: Kind, *more: Kind) -> tuple[Rule, ...]:
    return tuple(overload(f, result, kind, *more) for kind in MOMENTS)


def _part_of(name: str, kinds: Arguments) -> Overload | None:
    return part(name, kinds[0]) if len(kinds) == 1 else None


def _date_part(kinds: Arguments) -> Overload:
    name, kind = kinds.written[0], kinds[1]
    if not isinstance(name, str):
        return overload(lambda text, value: float(_named_part(text, kind).f(value)), _FLOAT, _TEXT, kind)
    chosen = _named_part(name, kind)
    return attrs.evolve(chosen, kinds=(None, *chosen.kinds))


def _named_part(name: str, kind: Kind) -> Overload:
    chosen = part(name.upper(), kind)
    if chosen is None:
        raise SqlError(f"the part {brief(name)} of {kind.value} is not supported")
    return chosen


def _bucket(kinds: Arguments) -> Overload | None:
    if len(kinds) not in (2, 3) or kinds[1] not in MOMENTS:
        return None
    if not isinstance(kinds.written[0], tuple):
        return overload(lambda width, *moments: bucket(0, width)(*moments), kinds[1], _SPAN, *[kinds[1]] * (len(kinds) - 1))
    return Overload((None, *[kinds[1]] * (len(kinds) - 1)), kinds[1], bucket(*kinds.written[0]))


def _span(step: int) -> SqlFunction:
    return SqlFunction((overload(lambda count: duration(count * step), _SPAN, _INT),))


def _epoch(scale: int) -> tuple[Rule, ...]:
    """Return what counts units since 1970, or makes a timestamp of such a count: ``scale`` digits of a second are the unit."""
    power = 10 ** (6 - scale)
    counted = _of_moments(lambda value: round_whole(_microseconds(value), scale - 6) // power, _INT)
    return (*counted, overload(_from_epoch(power, False), _STAMP, _INT))


def _of_unit(start: Callable[..., Any], *moments: datetime.date) -> Any:
    return start(*moments)


_PARTS_BY_NAME: Final = (
    *("century", "day", "dayofmonth", "dayofweek", "dayofyear", "decade", "epoch", "era", "hour", "isodow", "isoyear"),
    *("microsecond", "millennium", "millisecond", "minute", "month", "nanosecond", "quarter", "second", "week", "weekday"),
    *("weekofyear", "year", "yearweek"),
)

MOMENT_FUNCTIONS: Final = {
    **{name: SqlFunction((functools.partial(_part_of, name.upper()),)) for name in _PARTS_BY_NAME},
    **named("date_part, datepart", taking(2, _date_part)),
    **named(
        "date_trunc, datetrunc",
        *(overload(_of_unit, _STAMP if kind is _DATE else kind, _TEXT, kind) for kind in MOMENTS),
        prepared={0: truncated},
    ),
    **named("date_diff, datediff", *(overload(_of_unit, _INT, _TEXT, kind, kind) for kind in MOMENTS), prepared={0: boundaries}),
    **named(
        "date_sub, datesub", *(overload(_of_unit, _INT, _TEXT, kind, kind) for kind in (_DATE, _STAMP)), prepared={0: whole_units}
    ),
    **named("time_bucket", _bucket),
    **named("strftime", *_of_moments(_strftime, _TEXT, _TEXT), prepared={1: _format}),
    **named("strptime", overload(_strptime, _STAMP, _TEXT, _TEXT), prepared={1: _parsed_format}),
    **named("try_strptime", overload(_try_strptime, _STAMP, _TEXT, _TEXT, optional=True), prepared={1: _parsed_format}),
    **named("last_day", *_of_moments(_last_day, _DATE)),
    **named("dayname", *_of_moments(lambda value: _DAYS[value.weekday()], _TEXT)),
    **named("monthname", *_of_moments(lambda value: _MONTHS[value.month - 1], _TEXT)),
    **named(
        "make_date", overload(_date, _DATE, _INT, _INT, _INT), overload(lambda days: add_days(_EPOCH.date(), days), _DATE, _INT)
    ),
    **named("make_time", overload(_clock, _TIME, _INT, _INT, _FLOAT)),
    **named(
        "make_timestamptz",
        overload(_from_epoch(1, True), _INSTANT, _INT),
        *(overload(_instant, _INSTANT, *[_INT] * 5, _FLOAT, *zones) for zones in ((), (_TEXT,))),
        prepared={6: zone},
    ),
    **named(
        "at time zone",
        overload(in_zone, _INSTANT, _STAMP, _TEXT),
        overload(clock_in, _STAMP, _INSTANT, _TEXT),
        prepared={1: zone},
    ),
    **named(
        "timezone",
        overload(lambda place, value: in_zone(value, place), _INSTANT, _TEXT, _STAMP),
        overload(lambda place, value: clock_in(value, place), _STAMP, _TEXT, _INSTANT),
        prepared={0: zone},
    ),
    **named("epoch_ns", *_of_moments(lambda value: _microseconds(value) * 1000, _INT)),
    **named("epoch_us", *_of_moments(_microseconds, _INT)),
    **named("epoch_ms", *_epoch(3)),
    **named("make_timestamp", *_epoch(6), overload(_timestamp, _STAMP, *[_INT] * 5, _FLOAT)),
    **named("to_timestamp", overload(_from_epoch(1_000_000, True), _INSTANT, _FLOAT)),
    **{f"to_{unit.lower()}s": _span(step) for unit, (months, step) in UNITS.items() if not months},
}
