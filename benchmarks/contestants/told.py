"""What a contestant is told, and what it tells: the command line of its programs, and the answer.

A program is a function of a :class:`Task` that returns the answer. The seconds that are told are those of the call: everything
has been imported, and a session is up where one is needed; reading the input and having the answer in Python are in it, for
everyone. The answer is written to a file after that, as JSON: rows of a key and a value, in any order.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import get_context
from os import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO

Answer = Iterable[tuple[Any, Any]]

ROUNDS = 20
"""Rounds of PageRank."""


@dataclass(frozen=True)
class Task:
    """What there is to do: on which input (a file, or how many numbers), in how many processes, in batches of how many."""

    input: str
    processes: int = 1
    batch: int = 1000

    @property
    def size(self) -> int:
        """How many numbers there are, for workloads whose input is no file."""
        return int(self.input)

    def share(self, index: int) -> list[range]:
        """Return what is dealt to one of the processes of the numbers, in batches."""
        starts = range(index * self.batch, self.size, self.processes * self.batch)
        return [range(start, min(start + self.batch, self.size)) for start in starts]

    def lines(self, index: int) -> list[list[str]]:
        """Return the lines of the file that are one process's to read, in batches."""
        lines = self.part(index).decode().splitlines()
        return [lines[start : start + self.batch] for start in range(0, len(lines), self.batch)]

    def part(self, index: int) -> bytes:
        """Return one process's part of the file: the lines that begin in it. The parts have as many bytes, but for a line."""
        with Path(self.input).open("rb") as file:
            size = file.seek(0, SEEK_END)
            start, end = (_line_from(file, size * number // self.processes) for number in (index, index + 1))
            file.seek(start)
            return file.read(end - start)


def _line_from(file: BinaryIO, place: int) -> int:
    """Return where the first line begins that does not begin before this place."""
    if place == 0:
        return 0
    file.seek(place - 1)
    file.readline()
    return file.tell()


Program = Callable[[Task], Answer]


def main(programs: Iterable[Program], warm_ups: int = 0) -> None:
    """Run one program of a contestant, write the answer to a file, and print the seconds that it took.

    ``warm_ups`` runs come before it, for one whose first run is slow; what they took is told too, and counts nowhere.
    """
    by_name = {program.__name__: program for program in programs}
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=by_name)
    parser.add_argument("input")
    parser.add_argument("answer", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1000)
    chosen = parser.parse_args()
    task = Task(chosen.input, chosen.processes, chosen.batch)
    begun = time.perf_counter()
    for _ in range(warm_ups):
        list(by_name[chosen.program](task))
    start = time.perf_counter()
    answer = list(by_name[chosen.program](task))
    seconds = time.perf_counter() - start
    chosen.answer.write_text(json.dumps(answer))
    print(json.dumps({"seconds": seconds, "warm_up": start - begun}))


def in_processes(work: Callable[[int], list[Any]], processes: int) -> list[list[Any]]:
    """Return what ``work(index)`` returns in each of so many processes, of which this one is the first."""
    fork = get_context("fork")
    others = []
    for index in range(1, processes):
        here, there = fork.Pipe(duplex=False)
        other = fork.Process(target=lambda index=index, there=there: there.send(work(index)))
        other.start()
        others.append((here, other))
    answers = [work(0)]
    for here, other in others:
        answers.append(here.recv())
        other.join()
    return answers
