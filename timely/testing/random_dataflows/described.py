"""How random dataflows are printed: as the calls that make them.

A product is written ``Product(0, 1)``, not ``(0, 1)``, which is a tuple and has another order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args, get_origin

import attrs


class Described:
    """A base of value classes (attrs): ``repr`` is the call that makes the value, without arguments that are as by default.

    >>> from timely.order import Product
    >>> @attrs.frozen(repr=False)
    ... class Window(Described):
    ...     start: Product
    ...     kind: type
    ...     size: int = 1
    >>> Window(Product(0, 5), int), Window(Product(0, 5), Product[int, int], 3)
    (Window(Product(0, 5), int), Window(Product(0, 5), Product[int, int], 3))
    """

    __slots__ = ()

    def __repr__(self) -> str:
        arguments: list[str] = []
        skipped = False
        cls: Any = type(self)  # of attrs, as those derived from this one are
        for field in attrs.fields(cls):
            content = getattr(self, field.name)
            if field.default is not attrs.NOTHING and content == field.default:
                skipped = True
            else:
                arguments.append(f"{field.name}={_code(content)}" if skipped else _code(content))
        return f"{type(self).__name__}({', '.join(arguments)})"


def _code(value: Any) -> str:
    """Return an expression for a value; for a time of one's own it is its ``repr``."""
    origin = get_origin(value)
    if origin is not None:
        return f"{_code(origin)}[{_listed(get_args(value))}]"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{type(value).__name__}({_listed(value)})"
    if type(value) is tuple:
        return f"({_listed(value)},)" if len(value) == 1 else f"({_listed(value)})"
    return repr(value)


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(_code, values))
