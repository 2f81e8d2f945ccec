"""Sessions of events that come late or are taken back: a session may grow, merge with another, or split again."""

from __future__ import annotations

import timely
from timely import differential as dd

Event = tuple[str, int]
"""A user and a time."""

Session = tuple[str, int, int, int]
"""A user, the first and the last time, and the number of events."""

GAP = 10
EPOCHS: list[list[tuple[Event, int]]] = [
    [(("u", 1), 1), (("u", 5), 1), (("u", 30), 1), (("v", 3), 1)],
    [(("u", 14), 1)],
    [(("u", 22), 1)],
    [(("u", 14), -1)],
    [(("u", 5), -1), (("v", 3), -1)],
]
EXPECTED: list[list[tuple[Session, int]]] = [
    [(("u", 1, 5, 2), 1), (("u", 30, 30, 1), 1), (("v", 3, 3, 1), 1)],
    [(("u", 1, 5, 2), -1), (("u", 1, 14, 3), 1)],
    [(("u", 1, 14, 3), -1), (("u", 1, 30, 5), 1), (("u", 30, 30, 1), -1)],
    [(("u", 1, 5, 2), 1), (("u", 1, 30, 5), -1), (("u", 22, 30, 2), 1)],
    [(("u", 1, 1, 1), 1), (("u", 1, 5, 2), -1), (("v", 3, 3, 1), -1)],
]


def sessions(user: str, events: list[tuple[int, int]]) -> list[tuple[tuple[int, int, int], int]]:
    """Return the sessions of a user's times and their counts, which come in order."""
    found: list[tuple[int, int, int]] = []
    for time, count in events:
        if found and time - found[-1][1] <= GAP:
            first, _, number = found.pop()
            found.append((first, time, number + count))
        else:
            found.append((time, time, count))
    return [(session, 1) for session in found]


def build(events: dd.Collection[int, Event]) -> dd.Collection[int, Session]:
    return events.reduce(sessions).map(lambda found: (found[0], *found[1]))


def main() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            input, events = dd.new_collection(scope)
            found = build(events).output()
        for epoch, changes in enumerate(EPOCHS):
            for event, diff in changes:
                input.update(event, diff)
            input.advance_to(epoch + 1)
            found.wait(epoch)
            assert [(session, diff) for session, _, diff in found.changes(since=epoch)] == EXPECTED[epoch]
            print(f"epoch {epoch}:", *(f"{user} {first}-{last} ({n})" for user, first, last, n in sorted(found.at(epoch))))


if __name__ == "__main__":
    main()
