"""The name of an operator: the one that the user gives, else its kind and the user's function."""

from __future__ import annotations

import functools
import re
from types import CodeType, MethodType

from timely.dataflow.origin import is_ours
from timely.errors import GraphError, brief


def operator_name(kind: str, name: str | None, function: object = None) -> str:
    """Return ``name``, else ``"kind · function"``; the kind alone for lambdas, built-ins and functions of the library.

    ``GraphError`` for a name that is no string with something in it.

    >>> def clean(text):
    ...     return text.strip()
    >>> operator_name("map", None, clean), operator_name("map", None, lambda x: x), operator_name("map", "words", clean)
    ('map · clean', 'map', 'words')
    """
    if name is not None:
        if not isinstance(name, str) or not name:
            raise GraphError(f"{kind}: name= is what pictures and errors call the operator, a string, not {brief(name)}")
        return name
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, MethodType):
        function = function.__func__
    code, called = getattr(function, "__code__", None), getattr(function, "__name__", None)
    if not isinstance(code, CodeType) or not isinstance(called, str) or called == "<lambda>" or is_ours(code.co_filename):
        return kind
    return f"{kind} · {called}"


def without_functions(text: str) -> str:
    """Return ``text`` with the paths in it as they are whatever the functions are called: what checkpoints go by.

    >>> without_functions("operator /words/map · clean#1 with 1 input")
    'operator /words/map#1 with 1 input'
    """
    return re.sub(r" · \w+(?=#[0-9])", "", text)
