"""How does 3x + 1 end? A loop that stops when nothing is left in it.

Halve an even number, triple an odd one and add 1, until it is 1. All numbers go round together: times inside the loop
are pairs of an epoch and a round. No counter ends it; the dataflow is complete when no number is left that could still
change.
"""

from __future__ import annotations

from collections import defaultdict

import timely
from timely import Product, ScopeBuilder, Stream


def step(x: int) -> int:
    return x // 2 if x % 2 == 0 else 3 * x + 1


def main() -> None:
    rounds: defaultdict[int, list[int]] = defaultdict(list)

    def note(time: Product[int, int], x: int) -> None:
        rounds[time.inner].append(x)

    def build(scope: ScopeBuilder[int]) -> Stream[int, int]:
        numbers = scope.to_stream(range(1, 10))
        with scope.iterative() as loop:
            back, again = loop.feedback()
            stepped = numbers.enter(loop).concat(again).map(step).inspect_time(note)
            stepped.filter(lambda x: x != 1).connect_loop(back)
            return stepped.filter(lambda x: x == 1).leave()

    ended = timely.example(build)
    assert ended == [(0, [1] * 9)], "every number ends at 1"
    for number, values in sorted(rounds.items()):
        print(f"round {number:2}: {' '.join(map(str, sorted(values)))}")


if __name__ == "__main__":
    main()
