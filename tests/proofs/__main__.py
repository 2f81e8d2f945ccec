"""``python -m tests.proofs [--statements] [--write]``: check every proof and its link with the code. Exits 1 if something fails.

Prints the theorems and what they rest on; with ``--statements`` also what they say. Then the model computes the committed traces
again (``--write``: commits what it computes), and looks at recorded runs of the simulator. Coq is installed if it is missing;
exits 3, with the reason, where that is not possible.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.proofs import prover, recordings, traces


def check_theorems(folder: Path, statements: bool) -> None:
    """Print all theorems. ``ProofError`` unless each rests on nothing."""
    result = prover.theorems(folder)
    for theorem in result:
        print(f"{theorem.file + '.' + theorem.name:44}{theorem.assumptions}")
        if statements:
            print(theorem.statement, end="\n\n")
    bad = [theorem.name for theorem in result if theorem.assumptions != prover.CLOSED]
    if bad or not result:
        raise prover.ProofError(f"{len(bad)} of {len(result)} theorems rest on something: {', '.join(bad)}")
    print(f"proved: {len(result)} theorems")


def check_traces(folder: Path, write: bool) -> None:
    """Compute all traces. ``ProofError`` where the committed ones differ."""
    result = traces.evaluate(folder)
    if write:
        traces.write(result)
    for name, computed in result.items():
        if traces.text_of(traces.load(name)) != traces.text_of(computed):
            raise prover.ProofError(f"traces/{name}.json is not what the model computes: run python -m tests.proofs --write")
    print("computed: " + ", ".join(f"{len(computed)} {name}" for name, computed in result.items()))


def check_recordings(folder: Path) -> None:
    """Have the model look at recorded runs. ``ProofError`` if it refuses one, or accepts one in which something is wrong."""
    recorded = recordings.record_all()
    for recording, accepted in zip(recorded, traces.accepted(folder, recorded), strict=True):
        if not accepted:
            raise prover.ProofError(f"the model does not accept a recorded run: {recording.name}")
    if any(traces.accepted(folder, traces.tampered(recorded[0]))):
        raise prover.ProofError("the model accepts a recorded run that was tampered with")
    print(f"accepted: {len(recorded)} recorded runs, of {sum(len(recording.statements) for recording in recorded)} statements")


def main(arguments: list[str]) -> int:
    """Check all, and return the exit status."""
    began = time.monotonic()
    try:
        print(prover.install())
        left = prover.unproved()
        if left:
            raise prover.ProofError("left open or assumed: " + ", ".join(left))
        with prover.compiled() as folder:
            check_theorems(folder, "--statements" in arguments)
            check_traces(folder, "--write" in arguments)
            check_recordings(folder)
    except prover.NoProverError as error:
        print(f"SKIPPED: nothing was proved. {error}", file=sys.stderr)
        return 3
    except prover.ProofError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    print(f"all holds, after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
