"""Time zones: instants are kept in UTC, and clocks of a zone show them."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from timely.errors import SqlError, brief


def zone(name: str) -> ZoneInfo:
    """Return a time zone; ``SqlError`` for an unknown one."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise SqlError(f"there is no time zone {brief(name)}") from None


def in_zone(value: datetime.datetime, name: str) -> datetime.datetime:
    """Return the instant at which clocks of a zone show ``value``; one that they skip is as long after as it is before.

    >>> in_zone(datetime.datetime(2024, 7, 1, 12), "Europe/Berlin").isoformat()
    '2024-07-01T10:00:00+00:00'
    """
    return to_utc(value.replace(tzinfo=zone(name)))


def to_utc(value: datetime.datetime) -> datetime.datetime:
    """Return an instant as it is kept in a table."""
    try:
        return value.astimezone(datetime.UTC)
    except OverflowError as error:
        raise SqlError(f"{value}: {error}") from None


def clock_in(value: datetime.datetime, name: str) -> datetime.datetime:
    """Return what clocks of a zone show at an instant.

    >>> clock_in(datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC), "Europe/Berlin")
    datetime.datetime(2024, 7, 1, 14, 0)
    """
    try:
        return value.astimezone(zone(name)).replace(tzinfo=None)
    except OverflowError as error:
        raise SqlError(f"{value}: {error}") from None
