"""Workers in lockstep, without a single message: a barrier made of notifications.

Each worker asks to be notified of round 0, and when it is, of the next one. A request is a capability for its round,
and goes round the loop as what may still happen; so no worker is told of a round before every worker has been told of
the one before.
"""

from __future__ import annotations

import timely
from timely import InputPort, Notificator, OutputPort, Pipeline

ROUNDS = 1000
WORKERS = 2


def main() -> None:
    passed: list[tuple[int, int]] = []  # (round, worker), in the order in which it happened

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
    assert rounds == sorted(rounds), "somebody was a round ahead of somebody else"
    assert sorted(passed) == [(number, worker) for number in range(ROUNDS) for worker in range(WORKERS)]
    print(f"{WORKERS} workers passed {ROUNDS} rounds, and none was ever ahead of another")


if __name__ == "__main__":
    main()
