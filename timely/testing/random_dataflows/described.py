"""How random dataflows are printed: as Python that makes them again.

A product is written ``Product(0, 1)``, not ``(0, 1)``, which is a tuple and has another order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, get_args, get_origin

import attrs

from timely.progress import Antichain, ChangeBatch
from timely.testing.oracles import GraphSpec, NodeSpec
from timely.testing.schedule import Delivery, Resume

MODULE_OF_DATES = "datetime"
"""What its values print begins with its name, also inside of what others print."""


class Described:
    """A base of value classes (attrs): ``repr`` is the expression that makes the value again.

    >>> from timely.order import Product
    >>> @attrs.frozen(repr=False)
    ... class Window(Described):
    ...     start: Product
    ...     size: int = 1
    >>> Window(Product(0, 5)), Window(Product(0, 5), 3)
    (Window(Product(0, 5)), Window(Product(0, 5), 3))
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return as_code(self)


def as_code(value: Any) -> str:
    """Return an expression that makes an equal value: of data, times, types of times, and the specifications made of them.

    For a type of one's own it is the type's ``repr``, which should be such an expression; named tuples, classes of attrs and
    data classes that are printed as such, and those derived from ``int`` that are printed as numbers, are written as calls of
    their class, and members of an enumeration by their names.

    >>> from timely.order import Product
    >>> from timely.progress import LoopTime, Step
    >>> as_code([LoopTime(0, (1,)), True, None])
    '[LoopTime(0, (1,)), True, None]'
    >>> as_code((Product(0, 1), Product[int, int], Antichain([Product(2, 3)]), {0: Step(1)}))
    '(Product(0, 1), Product[int, int], Antichain([Product(2, 3)]), {0: Step(1)})'
    """
    if isinstance(value, Enum):
        return _member_code(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return f"{type(value).__name__}({_listed(value)})"
    if isinstance(value, int) and type(value) not in (int, bool) and repr(value) == repr(int(value)):
        return f"{type(value).__name__}({value!r})"
    if isinstance(value, Antichain | ChangeBatch):
        return f"{type(value).__name__}([{_listed(value)}])"
    if isinstance(value, list):
        return f"[{_listed(value)}]"
    if type(value) is tuple:
        return f"({_listed(value)},)" if len(value) == 1 else f"({_listed(value)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{as_code(key)}: {as_code(content)}" for key, content in value.items()) + "}"
    if isinstance(value, type) or get_origin(value) is not None:
        return _type_code(value)
    if isinstance(value, Described | GraphSpec | NodeSpec | Resume | Delivery):
        return f"{type(value).__name__}({', '.join(_arguments(value))})"
    return _own_code(value)


def _listed(values: Any) -> str:
    return ", ".join(map(as_code, values))


def _type_code(spec: Any) -> str:
    origin = get_origin(spec)
    if origin is not None:
        return f"{_type_code(origin)}[{', '.join(map(_type_code, get_args(spec)))}]"
    return f"{spec.__module__}.{spec.__name__}" if spec.__module__ == MODULE_OF_DATES else str(spec.__name__)


def _member_code(value: Enum) -> str:
    """Return how a member of an enumeration is written; a union of flags has no name, and is made of its value."""
    cls = type(value)
    return f"{cls.__name__}.{value.name}" if value.name in cls.__members__ else f"{cls.__name__}({as_code(value.value)})"


def _own_code(value: Any) -> str:
    """Return a value's ``repr``, with what its fields are made of in code where it is the one that such classes are given."""
    text, kind = repr(value), type(value)
    fields = list(fields_of(value))
    if fields and text == f"{kind.__qualname__.rpartition('>.')[2]}({', '.join(f'{name}={part!r}' for name, _, part in fields)})":
        return f"{kind.__name__}({', '.join(f'{argument}={as_code(part)}' for _, argument, part in fields)})"
    return text if kind.__module__ == MODULE_OF_DATES else text.removeprefix(f"{kind.__module__}.")


def fields_of(value: Any) -> Iterator[tuple[str, str, Any]]:
    """The fields of a value of a class of attrs or a data class that it is made of: name, argument, and what is in it."""
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            if field.init:
                yield field.name, field.alias or field.name, getattr(value, field.name)
    elif dataclasses.is_dataclass(value):
        for own in dataclasses.fields(value):
            if own.init:
                yield own.name, own.name, getattr(value, own.name)


def _arguments(value: Any) -> list[str]:
    """Return the arguments of the call that makes a value again; those that are as by default are left out."""
    arguments: list[str] = []
    skipped = False
    for field in attrs.fields(type(value)):
        content = getattr(value, field.name)
        if field.default is not attrs.NOTHING and content == field.default:
            skipped = True
        else:
            arguments.append(f"{field.name}={as_code(content)}" if skipped else as_code(content))
    return arguments
