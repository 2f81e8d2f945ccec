"""Custom timestamps: positive integers, ordered by divisibility.

2 and 3 are both before 6, and incomparable. A path multiplies times by a number. Both types implement the library's
protocols without importing it. The dataflow finds the numbers without prime factors above 5: starting from 1, three loops
multiply by 2, 3 and 5. Time 6 is reached twice, by 2 · 3 and by 3 · 2. When the frontier has passed all its divisors, 6 is
sent once.
"""

from __future__ import annotations

from functools import partial
from operator import mul

import attrs

import timely
from timely import InputPort, Notificator, OutputPort

LIMIT = 60


@attrs.frozen
class Times:
    """The path summary that multiplies by ``factor``."""

    factor: int

    def results_in(self, time: Number, /) -> Number | None:
        return Number(time.n * self.factor)

    def followed_by(self, other: Times, /) -> Times | None:
        return Times(self.factor * other.factor)

    def __le__(self, other: Times, /) -> bool:
        return other.factor % self.factor == 0

    def __lt__(self, other: Times, /) -> bool:
        return self <= other and self != other


@attrs.frozen
class Number:
    """The time ``n``, before its multiples."""

    n: int

    @classmethod
    def minimum(cls) -> Number:
        return Number(1)

    @classmethod
    def identity(cls) -> Times:
        return Times(1)

    def __le__(self, other: Number, /) -> bool:
        return other.n % self.n == 0

    def __lt__(self, other: Number, /) -> bool:
        return self <= other and self != other


def once(input: InputPort[Number, int], output: OutputPort[Number], notificator: Notificator[Number]) -> None:
    """Send each received time once, when it is complete."""
    for capability, _ in input:
        notificator.notify_at(capability.retain())
    for complete, _ in notificator:
        output.session(complete).give(complete.time.n)


def program(worker: timely.Worker) -> list[int]:
    with worker.dataflow(Number) as scope:
        one = scope.to_stream([1] if worker.index == 0 else [])
        loops = [(factor, *scope.feedback(Times(factor))) for factor in (2, 3, 5)]
        reached = one.concat(*(again for _, _, again in loops))
        found = reached.unary_notify(timely.Exchange(lambda n: n), "once", [], once)
        for factor, back, _ in loops:
            found.map(partial(mul, factor)).filter(lambda n: n <= LIMIT).connect_loop(back)
        captured = found.capture()
    worker.run()
    return [n for _, batch in captured.messages for n in batch]


def main() -> None:
    shares = timely.execute(program, workers=2)
    for share in shares:
        for place, n in enumerate(share):
            assert not any(n % later == 0 for later in share[place + 1 :]), f"{n} came before a divisor of it"
    print(*sorted(n for share in shares for n in share))


if __name__ == "__main__":
    main()
