"""The Collatz sequence: a loop that ends when no records are left in it.

Halve an even number, and replace an odd one by 3x + 1, until it is 1. Times in the loop are pairs of epoch and round. No
counter ends the loop: the dataflow is complete when no number is left in it.
"""

from __future__ import annotations

from collections import defaultdict

import timely
from timely import Product, Stream


def step(x: int) -> int:
    return x // 2 if x % 2 == 0 else 3 * x + 1


def main() -> None:
    rounds: defaultdict[int, list[int]] = defaultdict(list)

    def note(time: Product[int, int], x: int) -> None:
        rounds[time.inner].append(x)

    def build(scope: timely.ScopeBuilder[int]) -> Stream[int, int]:
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
