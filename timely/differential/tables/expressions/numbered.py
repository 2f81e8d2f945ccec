"""Values as whole numbers that are equal, and in the same order, where the values are: keys and values of columns of numbers."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from timely.differential.tables.values.kinds import DOUBLES, Kind
from timely.differential.tables.values.scalars import EXACT
from timely.differential.updates.row_columns import Fixed
from timely.operators.keyed.numbers import canonical

Array: TypeAlias = np.ndarray[Any, Any]


@attrs.frozen
class Numbering:
    """How values of a kind become numbers and are made of them, one by one and as columns without nulls.

    ``of_column`` and ``column_of`` return ``None`` where a column has values that go by rows.
    """

    of_value: Callable[[Any], int]
    value_of: Callable[[int], Any]
    of_column: Callable[[Any], Array | None]
    column_of: Callable[[Array], Any]


_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_MOMENT: Final = datetime.datetime(1970, 1, 1)
_STEP: Final = datetime.timedelta(microseconds=1)
_FLIPPED: Final = (1 << 63) - 1


def _same(value: Any) -> Any:
    return value


def _bits(value: float) -> int:
    """Return the number of a double: those below zero have their other bits turned round."""
    number: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return number if number >= 0 else number ^ _FLIPPED


def _double(number: int) -> Any:
    return canonical(struct.unpack("<d", struct.pack("<q", number if number >= 0 else number ^ _FLIPPED))[0])


def turned_bits(numbers: Array) -> Array:
    """Return the bits of doubles as numbers in their order, or such numbers as bits."""
    return np.where(numbers < 0, numbers ^ _FLIPPED, numbers)


def _doubles(numbers: Array) -> Any:
    doubles = turned_bits(numbers).view(np.float64)
    return None if np.isnan(doubles).any() else pa.array(doubles)


_NUMBERINGS: Final = {
    Kind.INTEGER: Numbering(_same, _same, lambda column: column.to_numpy(), pa.array),
    Kind.DATE: Numbering(
        lambda value: value.toordinal() - _DAY,
        lambda number: datetime.date.fromordinal(number + _DAY),
        lambda column: column.view(pa.int32()).to_numpy().astype(np.int64),
        lambda numbers: pa.array(numbers.astype(np.int32)).view(pa.date32()),
    ),
    Kind.TIMESTAMP: Numbering(
        lambda value: (value - _MOMENT) // _STEP,
        lambda number: _MOMENT + number * _STEP,
        lambda column: column.view(pa.int64()).to_numpy(),
        lambda numbers: pa.array(numbers).view(pa.timestamp("us")),
    ),
    **dict.fromkeys(
        DOUBLES,
        Numbering(_bits, _double, lambda column: turned_bits(column.to_numpy().view(np.int64)), _doubles),
    ),
}


def numbering(kind: Kind) -> Numbering | None:
    """Return how values of a kind are numbered, or ``None``."""
    scale = kind.scale
    if scale is None:
        return _NUMBERINGS.get(kind)
    return Numbering(
        lambda value: int(EXACT.scaleb(value, scale)),
        lambda number: EXACT.scaleb(Decimal(number), -scale),
        lambda column: column.numbers.to_numpy() if column.scale == scale else None,
        lambda numbers: Fixed(pa.array(numbers), scale),
    )


def numberings(kinds: Sequence[Kind]) -> list[Numbering] | None:
    """Return those of several kinds, or ``None`` where one has none."""
    listed = [made for kind in kinds if (made := numbering(kind)) is not None]
    return listed if len(listed) == len(kinds) else None
