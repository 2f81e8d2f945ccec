"""A bounded loop: after round LAST no record passes.

`Step(1, limit=LAST).results_in(LAST)` is None. This applies to progress as well as data. The frontier behind the loop
advances and the dataflow ends, although 4, 2, 1, 4, … would circulate forever. The dataflow finds the numbers that the
Collatz rule takes to 1 within LAST rounds.
"""

from __future__ import annotations

import timely
from timely import Product, ProductSummary, Step

LAST = 11
AGAIN = ProductSummary(Step(0), Step(1, limit=LAST))  # times are (epoch, round)


def program(worker: timely.Worker) -> list[int]:
    with worker.dataflow(int) as outside:
        numbers = outside.to_stream([(n, n) for n in range(1, 20) if n % worker.peers == worker.index])
        with outside.iterative() as loop:
            handle, again = loop.feedback(AGAIN)
            now = numbers.enter(loop).concat(again)
            step = now.map(lambda pair: (pair[0], 3 * pair[1] + 1 if pair[1] % 2 else pair[1] // 2))
            step.exchange(lambda pair: pair[1]).connect_loop(handle)
            seen = now.filter(lambda pair: pair[1] == 1).leave().capture()
    worker.run()
    return [n for _, batch in seen.extract() for n, _ in batch]


def main(workers: int = 2) -> None:
    assert AGAIN.results_in(Product(5, LAST)) is None
    assert AGAIN.followed_by(AGAIN) == ProductSummary(Step(0), Step(2, limit=LAST))
    found = {n for share in timely.execute(program, workers=workers) for n in share}
    assert found == {n for n in range(1, 20) if steps(n) <= LAST}
    print(*sorted(found))


def steps(n: int) -> int:
    return 0 if n == 1 else 1 + steps(3 * n + 1 if n % 2 else n // 2)


if __name__ == "__main__":
    main()
