"""``Mute``: a type of times that raise when they are to say what they are."""

from __future__ import annotations

from tests.progress.times import Moment

SAID = "a Mute, which raises RuntimeError when printed"


class Mute(Moment):
    """A time that cannot say what it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("mute")
