"""``TimeDomain``: what is known of a type of times.

A *specification* (``int``, ``Unit``, ``Product[int, int]``, a class) has one domain, which never changes.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from inspect import getattr_static, isfunction
from typing import Any, Final, Generic, TypeVar, cast, get_args, get_origin

from timely.errors import TimestampError, brief, error_text
from timely.order import PartialOrder, Product, sort_key
from timely.progress.timestamp import PathSummary, ProductSummary, Step, Unchanged, Unit, lacking

T = TypeVar("T", bound=PartialOrder)
TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)


class TimeDomain(Generic[T]):
    """What is known of a type of times: shared, got from :func:`time_domain`.

    ``spec`` is the specification and ``name`` its text, ``minimum`` the least time, ``identity`` the summary that changes
    nothing. ``total``: every two times are comparable. ``single``: there is only one time.
    """

    __slots__ = ("identity", "minimum", "name", "single", "spec", "total")

    def __init__(self, spec: Any, name: str, minimum: T, identity: PathSummary[T], total: bool, single: bool) -> None:
        self.spec = spec
        self.name = name
        self.minimum = minimum
        self.identity = identity
        self.total = total
        self.single = single

    def key(self, time: T) -> Any:
        """Return a sort key that extends the partial order, or None where the type has none."""
        return sort_key(time)

    def check(self, time: object) -> None:
        """Raise ``TimestampError`` unless ``time`` is a time of this type."""
        fault = self._fault(time)
        if fault is not None:
            raise TimestampError(f"{brief(time)} is not a time of type {self.name}: {fault}")

    def _fault(self, time: object) -> str | None:
        """Return what is wrong with ``time``, or None."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return time_domain, (self.spec,)

    def __repr__(self) -> str:
        return f"time_domain({self.name})"


class _IntDomain(TimeDomain[int]):
    """The natural numbers."""

    __slots__ = ()

    def _fault(self, time: object) -> str | None:
        if isinstance(time, bool) or not isinstance(time, int):
            return f"{brief(time)} is of type {type(time).__name__}, not int"
        return f"{brief(time)} is before the minimum, 0" if time < 0 else None


class _ClassDomain(TimeDomain[T]):
    """The instances of one class, at or beyond its minimum."""

    __slots__ = ("_cls",)

    def __init__(self, spec: Any, cls: type[Any], minimum: T, identity: PathSummary[T], total: bool) -> None:
        super().__init__(spec, cls.__name__, minimum, identity, total, cls is Unit)
        self._cls = cls

    def _fault(self, time: object) -> str | None:
        if not isinstance(time, self._cls):
            return f"{brief(time)} is of type {type(time).__name__}, not {self.name}"
        try:
            beyond = self.minimum <= cast("T", time)
        except Exception as error:  # the right type, with wrong parts
            return f"it cannot be compared with the minimum, {brief(self.minimum)}: {error_text(error)}"
        return None if beyond else f"it is not beyond the minimum, {brief(self.minimum)}"


class _ProductDomain(TimeDomain[Product[TO, TI]]):
    """Pairs of the times of two domains."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, spec: Any, outer: TimeDomain[TO], inner: TimeDomain[TI]) -> None:
        super().__init__(
            spec,
            f"Product[{outer.name}, {inner.name}]",
            Product(outer.minimum, inner.minimum),
            ProductSummary(outer.identity, inner.identity),
            (outer.single and inner.total) or (inner.single and outer.total),
            outer.single and inner.single,
        )
        self._outer = outer
        self._inner = inner

    def _fault(self, time: object) -> str | None:
        if not isinstance(time, Product):
            return f"{brief(time)} is of type {type(time).__name__}, not Product"
        return self._outer._fault(time[0]) or self._inner._fault(time[1])


class _OrdinaryDomain(_ClassDomain[Any]):
    """The values of one of Python's totally ordered types, from its least one on, which no summary advances."""

    __slots__ = ()

    def __init__(self, cls: type[Any], minimum: Any) -> None:
        super().__init__(cls, cls, minimum, Unchanged(), True)

    def _fault(self, time: object) -> str | None:
        if type(time) is not self._cls:  # a datetime is no date
            return f"{brief(time)} is of type {type(time).__name__}, not {self.name}"
        return super()._fault(time)


class _TupleDomain(TimeDomain[Any]):
    """Tuples of the times of total orders, ordered lexicographically, as Python does."""

    __slots__ = ("_parts",)

    def __init__(self, spec: Any, parts: list[TimeDomain[Any]]) -> None:
        name = f"tuple[{', '.join(part.name for part in parts)}]"
        for part in parts:
            if not part.total:
                raise TimestampError(f"{name} is ordered lexicographically, and times of type {part.name} have no total order")
        super().__init__(spec, name, tuple(part.minimum for part in parts), Unchanged(), True, all(part.single for part in parts))
        self._parts = parts

    def _fault(self, time: object) -> str | None:
        if type(time) is not tuple or len(time) != len(self._parts):
            return f"{brief(time)} is no tuple of {len(self._parts)}"
        return next((fault for part, value in zip(self._parts, time, strict=True) if (fault := part._fault(value))), None)


_ORDINARY: Final = {
    float: float("-inf"),
    str: "",
    bytes: b"",
    Decimal: Decimal("-Infinity"),
    date: date.min,
    datetime: datetime.min,
}
"""Python's types that are times as they stand, with the least value of each; a datetime has no time zone."""

_DOMAINS: dict[object, TimeDomain[Any]] = {}


def time_domain(spec: type[T]) -> TimeDomain[T]:
    """Return the domain of a specification, always the same object.

    A specification is ``int`` (from 0 on), ``Unit``, ``Product[A, B]`` of two specifications, a totally ordered type of Python
    (``float``, ``str``, ``bytes``, ``Decimal``, ``date``, ``datetime``), ``tuple[A, B]`` of total orders, ordered
    lexicographically, or a class with the methods of :class:`Timestamp`. ``TimestampError``, with what is missing, for anything
    else.

    >>> domain = time_domain(Product[int, Unit])
    >>> domain.name, domain.minimum, domain.identity, domain.total
    ('Product[int, Unit]', (0, Unit()), ProductSummary(Step(0), UnitSummary()), True)
    """
    try:
        known = _DOMAINS.get(spec)
    except TypeError:
        raise TimestampError(f"{brief(spec)} is not a type of times: give int, Unit, Product[A, B] or a class").caused_by(None)
    if known is None:
        known = _DOMAINS.setdefault(spec, _resolve(spec))  # another thread may have been faster
    return known


def _resolve(spec: Any) -> TimeDomain[Any]:
    if spec is int:
        return _IntDomain(int, "int", 0, Step(0), True, False)
    if spec in _ORDINARY:
        return _OrdinaryDomain(spec, _ORDINARY[spec])
    origin, parts = get_origin(spec), get_args(spec)
    if origin is tuple and parts and ... not in parts:
        return _TupleDomain(spec, [time_domain(part) for part in parts])
    if origin is Product:
        return _ProductDomain(spec, time_domain(parts[0]), time_domain(parts[1]))
    if spec is Product:
        raise TimestampError("Product alone is not a type of times: say of what, as in Product[int, int]")
    cls = spec if origin is None else origin
    if not isinstance(cls, type):
        name = f"; a name is given as name={spec!r}" if isinstance(spec, str) else ""
        raise TimestampError(f"{brief(spec)} is not a type of times: give int, Unit, Product[A, B] or a class{name}")
    absent = _missing(cls)
    if absent:
        raise TimestampError(
            f"{cls.__name__} cannot be a type of times: it lacks {', '.join(absent)};"
            " take int where any will do, and see docs/timestamps.md for one of your own"
        )
    minimum = _least(spec, cls)
    if not isinstance(minimum, cls):
        raise TimestampError(f"{cls.__name__}.minimum() returned {brief(minimum)}, which is no {cls.__name__}")
    if minimum != spec.minimum():
        raise TimestampError(
            f"{cls.__name__}.minimum() returned two times that are not equal, {brief(minimum)} both: give it an __eq__() by"
            " value, and a __hash__() that goes with it"
        )
    identity = spec.identity()
    missing = lacking(identity)
    if missing:
        raise TimestampError(f"{cls.__name__}.identity() returned {brief(identity)}, no path summary: it lacks {missing}")
    is_total = getattr(spec, "is_total", None)
    return _ClassDomain(spec, cls, minimum, identity, is_total is not None and bool(is_total()))


def _least(spec: Any, cls: type[Any]) -> Any:
    """Return the result of ``minimum()``, which like ``identity()`` must be callable on the class."""
    for name in ("minimum", "identity"):
        if isfunction(getattr(cls, name)) and not isinstance(getattr_static(cls, name), staticmethod):
            raise TimestampError(f"{cls.__name__}.{name}() is called on the class: make it a class method, with @classmethod")
    return spec.minimum()


def _missing(cls: Any) -> list[str]:
    """Return what ``cls`` lacks of :class:`Timestamp`."""
    missing = [f"{name}()" for name in ("__le__", "__lt__") if getattr(cls, name) is getattr(object, name)]
    for name in ("minimum", "identity"):
        if not callable(getattr(cls, name, None)):
            missing.append(f"the class method {name}()")
    if cls.__hash__ is None:
        missing.append("__hash__()")
    return missing
