"""Event time with late data: hourly means that late readings correct.

Twelve weather stations measure the temperature every ten minutes, and send their readings by radio. A station without a
connection sends its readings later. The times of the dataflow are minutes of event time. The input follows the newest
reading at a distance of twenty minutes. ``windows`` returns the readings of an hour when the frontier has passed it, and
late readings on a second stream. Both streams reach one state machine, which publishes corrected hours. No reading is lost
or counted twice: the last means are those of all readings.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable

import attrs

import timely
from timely.operators.keyed.windows import tumbling, windows

STATIONS, EVERY, PATIENCE, HOUR, DAY = 12, 10, 20, 60, 24 * 60

Total = tuple[int, int]
"""The sum of some readings, in tenths of a degree, and their number."""


@attrs.frozen
class Reading:
    """A temperature in tenths of a degree, with the minutes of the day at which it was taken and received."""

    station: int
    taken: int
    arrived: int
    tenths: int

    @property
    def hour(self) -> int:
        """The hour of the day of the measurement."""
        return self.taken // HOUR


def readings() -> list[Reading]:
    """The readings of one day in order of arrival: generated, the same each time."""
    chance = random.Random(1)
    found = []
    for station in range(STATIONS):
        lost = chance.randrange(DAY) if station % 3 == 0 else DAY  # no connection for two hours from here
        for taken in range(station % EVERY, DAY, EVERY):
            degrees = 12 + station / 4 - 6 * math.cos(2 * math.pi * (taken - 240) / DAY) + chance.random()
            delay = lost + 120 - taken if lost <= taken < lost + 120 else 20 * chance.random() ** 3
            found.append(Reading(station, taken, taken + int(delay), round(10 * degrees)))
    return sorted(found, key=lambda reading: reading.arrived)


def add(hour: int, new: Total, known: Total | None) -> Total:
    """Add two partial sums of an hour."""
    tenths, count = known or (0, 0)
    return tenths + new[0], count + new[1]


def publish(hour: int, new: Total, known: Total | None) -> tuple[Total, Iterable[tuple[int, Total]]]:
    """Update the sum of an hour, and send it."""
    total = add(hour, new, known)
    return total, [(hour, total)]


def program(worker: timely.Worker) -> list[tuple[int, list[tuple[int, Total]]]]:
    """Return the hours that this worker publishes, with their sums and times."""
    with worker.dataflow(int, name="weather") as scope:
        radio, stream = scope.new_input()
        complete, late = windows(stream, tumbling(HOUR), at=lambda reading: reading.taken, key=lambda reading: reading.hour)
        in_time = complete.map(lambda found: (found[0], (sum(reading.tenths for reading in found[2]), len(found[2]))))
        too_late = late.map(lambda found: (found[1].hour, (found[1].tenths, 1))).aggregate(add, lambda *pair: pair)
        published = in_time.concat(too_late).state_machine(publish).capture()
    newest = 0
    for reading in readings():  # every worker reads all readings, and sends its share
        newest = max(newest, reading.taken)
        radio.advance_to(max(radio.time, newest - PATIENCE))
        if reading.station % worker.peers == worker.index:
            radio.send(reading)
        worker.step()
    radio.close()
    worker.run()
    return published.extract()


def main() -> None:
    figures: defaultdict[int, list[tuple[int, Total]]] = defaultdict(list)
    for time, hour, total in sorted(
        (time, *figure) for share in timely.execute(program, workers=2) for time, batch in share for figure in batch
    ):
        figures[hour].append((time, total))
    for hour, known in sorted(figures.items()):
        said = (f"{tenths / n / 10:.2f} by {n} readings at {t // 60:02}:{t % 60:02}" for t, (tenths, n) in known)
        print(f"{hour:02}:00 to {hour + 1:02}:00  {', then '.join(said)}")

    everything: dict[int, Total] = {}
    for reading in readings():
        everything[reading.hour] = add(reading.hour, (reading.tenths, 1), everything.get(reading.hour))
    assert everything == {hour: known[-1][1] for hour, known in figures.items()}
    late = sum(known[-1][1][1] - known[0][1][1] for known in figures.values())
    print(f"{len(readings())} readings, {late} of them late, and all are in the last figures")


if __name__ == "__main__":
    main()
