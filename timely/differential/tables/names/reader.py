"""The reader: what an argument of the parser's tree says is read, or refused. Nothing is left out in silence."""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from timely.differential.tables.names.refusals import has_place, refusal
from timely.differential.tables.values.kinds import lower_case


def read(node: exp.Expr, *names: str) -> list[Any]:
    """Return arguments of a node, in this order; ``SqlError`` if it has others.

    >>> read(exp.column("a") + 1, "this", "expression")[1].name
    '1'
    >>> read(exp.Limit(expression=exp.Literal.number(1)), "this")
    Traceback (most recent call last):
        ...
    timely.errors.SqlError: LIMIT 1: a second argument is not supported here
    """
    args = node.args
    for name, value in args.items():
        if name not in names and value is not None and value != []:
            says_nothing = _SAYS_NOTHING.get(type(node), {})
            if name not in says_nothing or says_nothing[name] not in (_ANY, value):
                part = value[0] if isinstance(value, list) else value
                what = _WORDS.get(name) or name.rstrip("_").replace("_", " ").upper()
                raise refusal(part if isinstance(part, exp.Expr) and has_place(part) else node, f"{what} is not supported here")
    return [args.get(name) for name in names]


def listed(value: Any) -> list[exp.Expr]:
    """Return the nodes of an argument that may be left out, or be a single node."""
    return value if isinstance(value, list) else [] if value is None else [value]


def identifier(node: exp.Expr) -> str:
    """Return a name as it is written: of a column that stands alone, or of anything else."""
    (name,) = read(node, "this")
    return identifier(name) if isinstance(name, exp.Expr) else str(name)


def name_in(node: exp.Expr) -> str:
    """Return a name as it is compared.

    >>> name_in(exp.column("Id"))
    'id'
    """
    return lower_case(identifier(node))


_ANY: Final = object()

_SAYS_NOTHING: Final[dict[Any, dict[str, Any]]] = {
    exp.Array: {"bracket_notation": _ANY, "value_constructor": _ANY},
    exp.ArrayOverlaps: {"null_safe": _ANY},
    exp.Cast: {"_type": _ANY, "safe": _ANY, "requires_string": _ANY},
    exp.TryCast: {"_type": _ANY, "safe": _ANY, "requires_string": _ANY},
    exp.CTE: {"materialized": _ANY},
    exp.DPipe: {"safe": _ANY},
    exp.DataType: {"nested": _ANY},
    exp.Div: {"safe": _ANY, "typed": _ANY},
    exp.Identifier: {"quoted": _ANY},
    exp.Literal: {"is_string": _ANY},
    exp.Lateral: {"view": False, "outer": False},
    exp.Unnest: {"offset": False},
    exp.Window: {"over": _ANY},
}
"""What the parser notes in each node of a class, with the value that says nothing."""

_WORDS: Final = {
    "db": "a schema",
    "except_": "EXCLUDE",
    "expression": "a second argument",
    "expressions": "a list",
    "joins": "a join",
    "kind": "this kind",
    "spec": "a frame",
    "this": "an argument",
}
