"""``Mute``: a type of times that raise when they are to say what they are, and its summary."""

from __future__ import annotations

SAID = "a Mute, which raises RuntimeError when printed"


class Mute:
    """A time that cannot say what it is."""

    def __init__(self, n: int = 0) -> None:
        self.n = n

    def __le__(self, other: Mute) -> bool:
        return self.n <= other.n

    def __lt__(self, other: Mute) -> bool:
        return self.n < other.n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mute) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)

    def __repr__(self) -> str:
        raise RuntimeError("mute")

    @classmethod
    def minimum(cls) -> Mute:
        return cls()

    @classmethod
    def identity(cls) -> Later:
        return Later(0)


class Later:
    """The summary of ``Mute``: so many later."""

    def __init__(self, n: int) -> None:
        self.n = n

    def results_in(self, time: Mute, /) -> Mute | None:
        return Mute(time.n + self.n)

    def followed_by(self, other: Later, /) -> Later | None:
        return Later(self.n + other.n)

    def __le__(self, other: Later, /) -> bool:
        return self.n <= other.n

    def __lt__(self, other: Later, /) -> bool:
        return self.n < other.n

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, Later) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)
