"""The committed traces: each case with what the model computes for it, which only Coq can say.

``evaluate`` has Coq compute all of them; ``load`` reads what is committed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tests.proofs import cases, prover
from tests.proofs.cases import Case
from tests.proofs.recordings import Recording

FOLDER: Final = Path(__file__).resolve().parent / "traces"

_HEAD: Final = """From Coq Require Import List ZArith.
From Timely Require Import Exchange Network Model.
Import ListNotations.
Open Scope nat_scope.
Set Printing Width 1000000.
Set Printing Depth 1000000.
"""


def term(value: Any) -> str:
    """Return plain data as a Coq term: lists as lists, numbers as natural numbers, None as None."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return "[" + "; ".join(map(term, value)) + "]"


def time_of(time: Sequence[int]) -> str:
    return f"({time[0]}, {time[1]})"


def stamp_of(stamp: Sequence[Any]) -> str:
    return f"({stamp[0]}, {time_of(stamp[1])})"


def summary_of(summary: Any) -> str:
    if summary == "leave":
        return "Leave"
    outer, inner, limit = summary
    return f"Advance {outer} {inner} " + ("None" if limit is None else f"(Some {limit})")


def graph_of(arcs: Iterable[Sequence[Any]]) -> str:
    """Return edges between locations as a graph of the model."""
    return term([f"({start}, {summary_of(summary)}, {end})" for start, summary, end in arcs])


def counts_of(changes: Iterable[Sequence[Any]]) -> str:
    return term([f"({stamp_of(change)}, ({change[2]})%Z)" for change in changes])


def event_of(worker: int, lost: Iterable[Any], gained: Iterable[Any]) -> str:
    return f"Event stamp {worker} {term([stamp_of(s) for s in lost])} {term([stamp_of(s) for s in gained])}"


def _lookup(table: Any, *names: str, default: str) -> str:
    """Return a nested list as a function."""
    result, kinds = term(table), default
    for depth, name in enumerate(names):
        result = f"(nth {name} {result} {kinds if depth == len(names) - 1 else '[]'})"
    return f"(fun {' '.join(names)} => {result})"


def frontier_query(case: Case) -> str:
    rounds = term([counts_of(changes) for changes in case["rounds"]])
    return f"C (frontier_trace {graph_of(cases.arcs(case))} {cases.size(case['nodes'])} [] {rounds})"


def exchange_query(case: Case) -> str:
    inputs, outputs = cases.locations(case["nodes"])
    sources = [place for places in outputs for place in places]
    own = [*sources, *(inputs[m][i] for _, (m, i), held in case["edges"] if held)]
    ways = cases.ways_of(cases.groups_of(case["mode"], case["workers"]))
    decisions = []
    for kind, first, *rest in case["decisions"]:
        if kind == "do":
            decisions.append(f"Does ({event_of(first, *rest)})")
        elif kind == "flush":
            decisions.append(f"Flushes {first} {term(rest[0])}")
        else:
            decisions.append(f"Receives {first} {rest[0]}")
    return (
        f"exchange_case {graph_of(cases.arcs(case))} {cases.size(case['nodes'])} {case['workers']} {term(own)}"
        f" {term([stamp_of([place, [0, 0]]) for place in sources])}"
        f" (fun l => nth l {term([f'({one}, {other})' for one, other in cases.ranks(case)])} (0, 0)) true"
        f" {_lookup(ways['sends'], 'p', 'b', default='false')} {_lookup(ways['forwards'], 'w', 'b', 'c', default='false')}"
        f" {_lookup(ways['before'], 'p', 'b', default='0')} {_lookup(ways['distance'], 'p', 'b', default='0')} {term(decisions)}"
    )


def nesting_query(case: Case) -> str:
    """Ask for the frontiers at the outputs, of what is inside, and for those inside, of what may enter too."""
    nodes = case["nodes"]
    _, outputs = cases.locations(nodes)
    inner = cases.arcs(case)
    beyond = cases.size(nodes)
    exits = [[outputs[n][o], "leave", beyond + port] for port, (n, o) in enumerate(case["leaving"])]
    rounds = term([counts_of(changes) for changes in case["rounds"]])
    enters = counts_of([[port, [time, 0], 1] for port, times in case["entering"] for time in times])
    size = beyond + len(exits)
    return (
        f"C [C (frontier_trace {graph_of(inner + exits)} {size} [] {rounds});"
        f" C (frontier_trace {graph_of(inner)} {beyond} {enters} {rounds})]"
    )


def compaction_query(case: list[Any]) -> str:
    return f"compaction_trace {term([f'({time_of(t)}, {term([time_of(f) for f in frontier])})' for t, frontier in case])}"


def reduction_query(case: Case) -> str:
    batches = [[f"({time_of(t)}, {v}, ({d})%Z)" for t, v, d in batch] for batch in reversed(case["batches"])]
    return f"reduction_trace {cases.VALUES} {term(case['most'])} {term(batches)}"


def join_query(case: Case) -> str:
    sides = [term([f"(({k}, {v}), {time_of(t)}, ({d})%Z)" for k, v, t, d in case[side]]) for side in ("left", "right")]
    return f"join_trace {cases.VALUES} {' '.join(sides)}"


def _nestings() -> Iterable[Case]:
    return islice(cases.nesting_cases(), 40)


FAMILIES: Final[dict[str, tuple[Callable[[], Iterable[Any]], Callable[[Any], str]]]] = {
    "frontiers": (cases.frontier_cases, frontier_query),
    "exchanges": (cases.exchange_cases, exchange_query),
    "nestings": (_nestings, nesting_query),
    "compactions": (lambda: [cases.compaction_cases()], compaction_query),
    "reductions": (cases.reduction_cases, reduction_query),
    "joins": (cases.join_cases, join_query),
}


def parse(text: str) -> Any:
    """Return printed ``data`` as lists of numbers."""
    text = re.sub(r"N \((-\d+)\)", r"\1", re.sub(r"%Z", "", text))
    return json.loads(re.sub(r"\bN ", "", text).replace("C [", "[").replace(";", ","))


def compute(folder: Path, queries: Iterable[str]) -> list[Any]:
    """Return the ``data`` that Coq computes for each query. ``ProofError`` for what is not in the model."""
    script = _HEAD + "".join(f"Eval vm_compute in ({query}).\n" for query in queries)
    printed = prover.evaluate(folder, script)
    collected = [
        parse(" ".join(part.split())) for part in re.findall(r"^ *= (.*?)\n *: data$", printed, re.MULTILINE | re.DOTALL)
    ]
    for answer in collected:
        if "-9" in str(answer) or _refused(answer):
            raise prover.ProofError(f"the model refuses a case: {str(answer)[:200]}")
    return collected


def _refused(answer: Any) -> bool:
    """Whether an answer is, or has for a part, the number of a case that is not legal or did not settle."""
    return isinstance(answer, int) or any(part == -1 or part == -2 for part in answer)


def evaluate(folder: Path) -> dict[str, list[Any]]:
    """Return all cases of each family with what the model computes: ``[case, answer]``."""
    groups: dict[str, list[Any]] = {}
    for name, (make, query) in FAMILIES.items():
        made = list(make())
        answers = compute(folder, map(query, made))
        groups[name] = [list(pair) for pair in zip(made, answers, strict=True)]
    return groups


def text_of(traces: list[Any]) -> str:
    """Return the text of a committed file: a line for each trace."""
    return "[\n" + ",\n".join(json.dumps(trace, separators=(",", ":")) for trace in traces) + "\n]\n"


def write(systems: dict[str, list[Any]]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, traces in systems.items():
        (FOLDER / f"{name}.json").write_text(text_of(traces), "utf-8")


def load(name: str) -> list[Any]:
    """Return the committed traces of a family."""
    result: list[Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return result


# -- the other way round: does the model accept a recorded run? ------------------------------------------------------


def recording_query(recording: Recording) -> str:
    """Ask whether the model accepts a recording: 1 if it does, else 0."""
    run = [event_of(statement.worker, statement.lost, statement.gained) for statement in reversed(recording.statements)]
    seen = [f"Observation {o.so_far} {term(o.cut)} {counts_of(o.counts)}" for o in recording.observations]
    rank = f"(fun l => nth l {term([f'({one}, {other})' for one, other in recording.ranks])} (0, 0))"
    initial = term([stamp_of(stamp) for stamp in recording.initial])
    return (
        f"C [N (if accepts {graph_of(recording.arcs)} {term(recording.owned)} {recording.workers} {initial} {rank}"
        f" {term(run)} {term(seen)} then 1%Z else 0%Z)]"
    )


def accepted(folder: Path, recordings: Iterable[Recording]) -> list[bool]:
    """Return which recordings the model accepts."""
    return [answer == [1] for answer in compute(folder, map(recording_query, recordings))]


def tampered(recording: Recording) -> list[Recording]:
    """Return recordings in which something is wrong that the model must notice."""
    lossy, hasty, miscounted = (deepcopy(recording) for _ in range(3))
    middle = next(n for n, statement in enumerate(lossy.statements) if n > len(lossy.statements) // 2 and statement.gained)
    lossy.statements[middle].gained.pop()
    place, (outer, inner) = hasty.statements[-1].lost[-1]
    hasty.statements[-1].gained.append([place, [max(outer - 1, 0), inner]])
    miscounted.observations[len(miscounted.observations) // 2].counts.append([0, [0, 0], 1])
    return [lossy, hasty, miscounted]
