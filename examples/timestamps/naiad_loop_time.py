"""Naiad's timestamps in one flat dataflow: an epoch, and one counter per loop, compared lexicographically.

The inner loop computes a digit sum, one digit per round. The outer loop repeats this until one digit is left. Both loops are
in one scope; ingress, egress and feedback are paths with summaries of `timely.LoopTime`. The times (epoch, (r, i)) of round r
are before (epoch, (r + 1,)), so a round of the outer loop is notified when the inner loop has finished the round before.
"""

from __future__ import annotations

from typing import Any

import timely
from timely import InputPort, LoopSummary, LoopTime, Notificator, OutputPort, Stream


def along(stream: Stream[LoopTime, Any], summary: LoopSummary) -> Stream[LoopTime, Any]:
    """Move a stream's times along a path, with the operator of `feedback`."""
    handle, moved = stream.scope.feedback(summary)
    stream.connect_loop(handle)
    return moved


def program(worker: timely.Worker) -> list[tuple[LoopTime, list[tuple[int, int]]]]:
    rounds: dict[LoopTime, list[tuple[int, int]]] = {}

    def by_round(input: InputPort[LoopTime, Any], output: OutputPort[LoopTime], notificator: Notificator[LoopTime]) -> None:
        for capability, batch in input:
            rounds.setdefault(capability.time, []).extend(batch)
            notificator.notify_at(capability.retain())
        for complete, _ in notificator:
            output.session(complete).give_many(rounds.pop(complete.time))

    with worker.dataflow(LoopTime) as scope:
        numbers = scope.to_stream([(n, n) for n in (7, 38, 199, 9999) if n % worker.peers == worker.index])
        outer, again = scope.feedback(LoopSummary.feedback(1))
        each = along(numbers, LoopSummary.ingress(1)).concat(again)
        collected = each.unary_notify(timely.Exchange(lambda pair: pair[0]), "by round", [], by_round)
        done, large = collected.branch(lambda pair: pair[1] > 9)
        inner, further = scope.feedback(LoopSummary.feedback(2))
        digits = along(large.map(lambda pair: (pair[0], pair[1], 0)), LoopSummary.ingress(2)).concat(further)
        summed, left = digits.map(lambda x: (x[0], x[1] // 10, x[2] + x[1] % 10)).branch(lambda x: x[1] > 0)
        left.connect_loop(inner)
        along(summed, LoopSummary.egress(2)).map(lambda x: (x[0], x[2])).connect_loop(outer)
        by_rounds, roots = collected.capture(), along(done, LoopSummary.egress(1)).capture()
    worker.run()
    return by_rounds.extract() + roots.extract()


def main(workers: int = 2) -> None:
    found = [(time, pair) for share in timely.execute(program, workers=workers) for time, batch in share for pair in batch]
    rounds = {r: sorted(pair for time, pair in found if time == LoopTime(0, (r,))) for r in range(4)}
    assert rounds == {0: [(7, 7), (38, 38), (199, 199), (9999, 9999)], 1: [(38, 11), (199, 19), (9999, 36)],
                      2: [(38, 2), (199, 10), (9999, 9)], 3: [(199, 1)]}
    assert sorted(pair for time, pair in found if time == LoopTime(0)) == [(7, 7), (38, 2), (199, 1), (9999, 9)]


if __name__ == "__main__":
    main()
