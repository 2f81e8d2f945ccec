"""A barrier made of notifications: workers in lockstep without data messages.

Each worker requests a notification for round 0, then for the next round, and so on. A request is a capability for its
round. Its effect travels round the loop, so no worker enters a round before all workers have left the previous one.
"""

from __future__ import annotations

import timely
from timely import InputPort, Notificator, OutputPort, Pipeline

ROUNDS = 1000
WORKERS = 2


def main() -> None:
    passed: list[tuple[int, int]] = []  # (round, worker), in order of execution

    def program(worker: timely.Worker) -> None:
        def logic(input: InputPort[int, object], output: OutputPort[int], notificator: Notificator[int]) -> None:
            for capability, _ in notificator:
                passed.append((capability.time, worker.index))
                if capability.time + 1 < ROUNDS:
                    notificator.notify_at(capability.delayed(capability.time + 1))

        with worker.dataflow(int) as scope:
            back, again = scope.feedback()
            again.unary_notify(Pipeline, "barrier", [0], logic).connect_loop(back)

    timely.execute(program, workers=WORKERS)
    rounds = [number for number, _ in passed]
    assert rounds == sorted(rounds), "a worker was a round ahead"
    assert sorted(passed) == [(number, worker) for number in range(ROUNDS) for worker in range(WORKERS)]
    print(f"{WORKERS} workers passed {ROUNDS} rounds, and none was ever ahead of another")


if __name__ == "__main__":
    main()
