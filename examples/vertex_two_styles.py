"""Two styles of aggregation: revise results early, or wait for a notification and send one final result.

Both vertices compute the highest bid per item and epoch. The first sends each improvement at once, without coordination;
its results may be revised. The second requests a notification, and sends one final result (Naiad, section 2.4).
"""

from __future__ import annotations

from collections import defaultdict

import timely
from timely import Exchange, Vertex

Bid = tuple[str, int]

EPOCHS: list[list[Bid]] = [
    [("lamp", 10), ("clock", 50), ("lamp", 12), ("lamp", 11), ("clock", 55), ("lamp", 30)],
    [("chair", 5), ("lamp", 9), ("chair", 4), ("chair", 8)],
]
WORKERS = 2


class Revising(Vertex[int]):
    """Sends an item's highest bid each time it rises, without coordination."""

    def __init__(self) -> None:
        self.highest: defaultdict[int, dict[str, int]] = defaultdict(dict)

    def on_recv(self, port: int, batch: list[Bid], time: int) -> None:
        highest = self.highest[time]
        for item, bid in batch:
            if bid > highest.get(item, 0):
                highest[item] = bid
                self.send_by(0, [(item, bid)], time)
        self.notify_at(time)

    def on_notify(self, time: int) -> None:
        del self.highest[time]  # the epoch is complete


class Final(Vertex[int]):
    """Sends the highest bids once, when their epoch is complete."""

    def __init__(self) -> None:
        self.highest: defaultdict[int, dict[str, int]] = defaultdict(dict)

    def on_recv(self, port: int, batch: list[Bid], time: int) -> None:
        highest = self.highest[time]
        for item, bid in batch:
            highest[item] = max(bid, highest.get(item, 0))
        self.notify_at(time)

    def on_notify(self, time: int) -> None:
        self.send_by(0, sorted(self.highest.pop(time).items()), time)


def main() -> None:
    revised: list[tuple[int, Bid]] = []
    final: list[tuple[int, Bid]] = []
    last = len(EPOCHS) - 1

    def program(worker: timely.Worker) -> None:
        by_item = Exchange(lambda bid: bid[0])
        with worker.dataflow(int) as scope:
            bids, stream = scope.new_input()
            stream.vertex(Revising, pact=by_item).inspect_time(lambda time, bid: revised.append((time, bid)))
            stream.vertex(Final, pact=by_item).inspect_time(lambda time, bid: final.append((time, bid)))
        for epoch, records in enumerate(EPOCHS):
            bids.advance_to(epoch)
            for bid in records[worker.index :: worker.peers]:
                bids.send(bid)
        while all(time < last for time, _ in revised):
            worker.step()
        assert all(time < last for time, _ in final), "a final answer was sent before its epoch was complete"
        bids.close()

    timely.execute(program, workers=WORKERS)
    received: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for time, (item, bid) in revised:
        received[time, item].append(bid)
    answers = {(time, item): bid for time, (item, bid) in final}
    assert len(answers) == len(final), "a final answer was sent twice"
    assert answers == {place: bids[-1] for place, bids in received.items()}
    assert all(bids == sorted(set(bids)) for bids in received.values()), "a revision was not an improvement"
    for (time, item), bid in sorted(answers.items()):
        print(f"epoch {time}: {item} went for {bid}")
    print("the last revisions are the final answers")


if __name__ == "__main__":
    main()
