"""Parameters of GraphFrames that steer its loops of jobs, and have nothing to steer here: who gives one is warned, by name.

The invariant: a program of GraphFrames runs as it is, and no argument that differs from its default is passed over in silence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from timely.dataflow import warn

P = ParamSpec("P")
R = TypeVar("R")


def without_effect(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a method warn where one of these parameters is given, other than its default."""

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(method)
        defaults = {name: signature.parameters[name].default for name in names}

        @wraps(method)
        def call(*arguments: P.args, **options: P.kwargs) -> R:
            passed = signature.bind(*arguments, **options).arguments
            changed = [f"{name}={passed[name]!r}" for name in names if passed.get(name, defaults[name]) != defaults[name]]
            if changed:
                warn_of(method.__name__, ", ".join(changed))
            return method(*arguments, **options)

        return call

    return decorate


def warn_of(method: str, argument: str) -> None:
    """Warn that an argument of a method changes nothing."""
    warn(
        f"{method}: {argument} changes nothing here: a loop runs to its end in one job, whose checkpoint= and checkpoint_every="
        " write checkpoints, and counts are exact. Leave it out"
    )
