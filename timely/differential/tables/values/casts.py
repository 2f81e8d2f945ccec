"""``CAST``: what a value of one kind is as one of another, if it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from timely.differential.tables.values.kinds import (
    Kind,
    conversion,
    then,
)
from timely.differential.tables.values.number_functions import round_float
from timely.differential.tables.values.overloads import Overload, always
from timely.differential.tables.values.parsing import OutOfYears
from timely.errors import SqlError

Narrow = Callable[[Any], Any]


def cast_of(kind: Kind, result: Kind, narrow: Narrow | None) -> Overload:
    """Return the cast of values of ``kind`` to another, which ``narrow`` checks to fit a type."""
    convert = conversion(kind, result)
    if kind is Kind.DOUBLE and result.scale is not None:
        convert = _decimal_of_double(result.scale)
    if convert is None:
        raise SqlError(f"a cast of {kind.value} to {result.value} is not supported")
    return Overload((kind,), result, convert if narrow is None else then(convert, narrow))


def tried(cast: Overload) -> Overload:
    """Return a cast that gives ``None`` for what does not fit."""
    if cast.result.nested:
        raise SqlError("TRY_CAST of lists and structs is not supported")
    convert = cast.f

    def attempt(value: Any) -> Any:
        try:
            return convert(value)
        except OutOfYears:
            raise
        except SqlError:
            return None

    return Overload(cast.kinds, cast.result, attempt, always)


def _decimal_of_double(scale: int) -> Callable[[float], Decimal]:
    def convert(value: float) -> Decimal:
        units = round_float(value * 10.0**scale)
        if not math.isfinite(units):
            raise SqlError(f"{value} does not fit a DECIMAL")
        return Decimal(f"{int(units)}e-{scale}")  # with all digits, where arithmetic would round

    return convert


def of_elements(narrow: Narrow) -> Narrow:
    """Return the check of lists whose elements fit a type."""
    return lambda values: tuple(None if value is None else narrow(value) for value in values)


def of_fields(narrows: Sequence[Narrow | None]) -> Narrow:
    """Return the check of structs whose fields fit their types."""
    return lambda values: tuple(
        value if value is None or narrow is None else narrow(value) for value, narrow in zip(values, narrows)
    )
