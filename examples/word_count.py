"""Word count: the words in the descriptions of each section of Debian, complete section by section.

Each section is one epoch. The workers share the input, and each word is routed to one worker. The counts of a section are
sent once, when the frontier has passed it, while later sections are being read.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import partial

import timely
from timely import InputPort, Notificator, OutputPort, Stream
from timely.cli.debian import packages


def read() -> dict[str, list[str]]:
    """The descriptions of the packages of each section."""
    sections: defaultdict[str, list[str]] = defaultdict(list)
    for row in packages().to_pylist():
        sections[row["section"]].append(row["description"])
    return dict(sorted(sections.items()))


def count(words: Stream[int, str]) -> Stream[int, tuple[str, int]]:
    """The count of each word in each epoch, sent when the epoch is complete."""
    counts: dict[int, Counter[str]] = {}

    def logic(input: InputPort[int, str], output: OutputPort[int], notificator: Notificator[int]) -> None:
        for capability, batch in input:
            if capability.time not in counts:
                counts[capability.time] = Counter()
                notificator.notify_at(capability.retain())
            counts[capability.time].update(batch)
        for complete, _ in notificator:
            output.session(complete).give_many(counts.pop(complete.time).items())

    return words.unary_notify(timely.Exchange(lambda word: word), "count", [], logic)


def main() -> None:
    sections = read()

    def program(worker: timely.Worker) -> list[tuple[int, list[tuple[str, int]]]]:
        with worker.dataflow(int) as scope:
            descriptions, stream = scope.new_input()
            words = stream.flat_map(lambda text: re.findall(r"[a-z]{5,}", text.lower()))
            counted = words.apply(count)
            found, probe = counted.capture(), counted.probe()
        for epoch, texts in enumerate(sections.values()):
            descriptions.advance_to(epoch)
            descriptions.send_batch(texts[worker.index :: worker.peers])
            worker.step_while(partial(probe.less_than, epoch - 2))  # read at most two sections ahead
        descriptions.close()
        worker.run()
        return found.extract()

    totals: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for part in timely.execute(program, workers=2):
        for epoch, counts in part:
            totals[epoch].update(dict(counts))
    for epoch, section in enumerate(sections):
        common = sorted(totals[epoch].items(), key=lambda item: (-item[1], item[0]))[:4]
        print(f"{section:14} {', '.join(f'{word} {number}' for word, number in common)}")


if __name__ == "__main__":
    main()
