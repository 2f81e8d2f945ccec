"""Time zones: instants are kept in UTC, and clocks of a zone show them."""

from __future__ import annotations

import datetime
import difflib
import functools
from collections.abc import Mapping
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from timely.errors import SqlError, brief


def zone(name: str) -> ZoneInfo:
    """Return a time zone, whose name may be written in any case; ``SqlError`` for an unknown one.

    >>> zone("europe/berlin").key
    'Europe/Berlin'
    """
    known = _names().get(name.lower())
    if known is None:
        near = difflib.get_close_matches(name.lower(), _names(), 1)
        hint = f", as {_names()[near[0]]} is one" if near else ""
        raise SqlError(f"there is no time zone {brief(name)}{hint}")
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

    >>> [in_zone(datetime.datetime(2024, *day, 2, 30), ZoneInfo("Europe/Berlin")).isoformat() for day in ((3, 31), (10, 27))]
    ['2024-03-31T01:30:00+00:00', '2024-10-27T01:30:00+00:00']
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
    """Return what clocks of a zone show at an instant.

    >>> clock_in(datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC), ZoneInfo("Europe/Berlin"))
    datetime.datetime(2024, 7, 1, 14, 0)
    """
    try:
        return value.astimezone(place).replace(tzinfo=None, fold=0)
    except OverflowError as error:
        raise SqlError(f"{value}: {error}") from None
