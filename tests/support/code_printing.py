"""Programs that make what a test was run on: imports and assignments, to paste into a test or an interpreter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any, get_args, get_origin

import attrs

from timely.progress import Antichain, ChangeBatch
from timely.testing.random_dataflows import MODULE_OF_DATES, as_code, fields_of


def as_program(**values: Any) -> str:
    """Return a program that makes each of the values and gives it its name: imports first, one assignment a value.

    >>> from timely.order import Product
    >>> print(as_program(time=Product(0, 1), spec=int))
    from timely.order import Product
    <BLANKLINE>
    time = Product(0, 1)
    spec = int
    <BLANKLINE>
    """
    assignments = [f"{name} = {as_code(value)}" for name, value in values.items()]
    return "\n".join([*imports_for(*values.values()), "", *assignments, ""])


def imports_for(*values: Any) -> list[str]:
    """Return the import statements that the code of some values needs, a line each.

    >>> from timely.order import Product
    >>> imports_for(Product(0, 1), [Antichain([2])])
    ['from timely.order import Product', 'from timely.progress.antichain import Antichain']
    """
    modules: dict[str, set[str]] = {}
    for value in values:
        _collect(value, modules)
    return [
        f"import {module}" if module == MODULE_OF_DATES else f"from {module} import {', '.join(sorted(names))}"
        for module, names in sorted(modules.items())
    ]


def _collect(value: Any, modules: dict[str, set[str]]) -> None:
    """Note which names, of which modules, are needed to write a value."""
    kind = value if isinstance(value, type) else get_origin(value) or type(value)
    if kind.__module__ != "builtins":
        modules.setdefault(kind.__module__, set()).add(kind.__name__)
    if get_origin(value) is not None:
        parts: Any = get_args(value)
    elif isinstance(value, Mapping):
        parts = [part for item in value.items() for part in item]
    elif isinstance(value, Enum):
        parts = []
    elif (attrs.has(kind) or dataclasses.is_dataclass(kind)) and not isinstance(value, type):
        parts = [part for _, _, part in fields_of(value)]
    elif isinstance(value, list | tuple | set | frozenset | Antichain | ChangeBatch):
        parts = list(value)
    else:
        parts = [getattr(value, name) for name in ("outer", "inner") if hasattr(value, name) and not isinstance(value, type)]
    for part in parts:
        _collect(part, modules)
