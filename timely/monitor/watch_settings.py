"""``WatchSettings``: how a run is watched, as ``execute(watch=...)`` and the environment say."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import attrs

from timely.errors import ConfigurationError

VARIABLE: Final = "TIMELY_WATCH"
"""The environment variable that turns watching off where it is 0."""

PATIENCE: Final = 60.0
"""Seconds without movement after which a run is stuck, by default."""

SHOWN_AFTER: Final = 2.0
"""Seconds after which a run gets a line on the terminal."""

SHOWN_EVERY: Final = 0.5

LOOKS: Final = 4
"""How often to look within the seconds after which a run is stuck."""


@attrs.frozen
class WatchSettings:
    """Report to ``say``, or else the log, when nothing has moved for ``patience`` seconds; and show a ``line``.

    Without ``inputs`` a run that waits only for its inputs is not stuck.
    """

    patience: float = PATIENCE
    line: bool = True
    say: Callable[[str], object] | None = None
    inputs: bool = True

    def without_line(self) -> WatchSettings:
        """Return the settings for a run that shares its terminal with a prompt."""
        return attrs.evolve(self, line=False)

    @classmethod
    def wanted(cls, watch: bool | float) -> WatchSettings | None:
        """Return the settings for ``watch``; ``None`` for none. ``ConfigurationError`` for a number that is not positive."""
        if not isinstance(watch, int | float) or not (watch is False or watch > 0):
            raise ConfigurationError(
                f"watch={watch!r}: give the seconds without movement after which to say what is stuck, or False for no watch"
            )
        if watch is False or is_switched_off():
            return None
        return cls() if watch is True else cls(float(watch))


def is_switched_off() -> bool:
    """Return whether the environment turns watching off."""
    return os.environ.get(VARIABLE) == "0"
