"""Two ways to write an aggregate: revise the answer as records come, or wait for a notification and give it once.

Both vertices look for the highest bid for each item in each epoch. The first sends at once whenever it knows better, and waits
for nobody: whoever reads it sees early answers, which may be revised. The second asks to be notified, and sends one answer,
which is final. Both are timely dataflow; which is right depends on who reads them (Naiad, section 2.4).
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
    """Sends an item's highest bid each time it rises, without any coordination."""

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
        del self.highest[time]  # nothing more is sent; what is over can be forgotten


class Final(Vertex[int]):
    """Sends the highest bids once, when no bid of their epoch can come any more."""

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
        assert all(time < last for time, _ in final), "a final answer came before its epoch was over"
        bids.close()

    timely.execute(program, workers=WORKERS)
    heard: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for time, (item, bid) in revised:
        heard[time, item].append(bid)
    answers = {(time, item): bid for time, (item, bid) in final}
    assert len(answers) == len(final), "a final answer was given twice"
    assert answers == {place: bids[-1] for place, bids in heard.items()}
    assert all(bids == sorted(set(bids)) for bids in heard.values()), "a revision was no better than the one before"
    for (time, item), bid in sorted(answers.items()):
        print(f"epoch {time}: {item} went for {bid}")
    print("the last revisions are the final answers")


if __name__ == "__main__":
    main()
