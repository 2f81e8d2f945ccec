"""``python -m tests.proofs``: check every proof, print the theorems and what they rest on. Exits 1 if anything is not proved.

Coq is installed if it is missing. Exits 3, with the reason, where that is not possible.
"""

from __future__ import annotations

import sys
import time

from tests.proofs import prover


def main() -> int:
    """Check all, and return the exit status."""
    began = time.monotonic()
    try:
        print(prover.install())
    except prover.NoProverError as error:
        print(f"SKIPPED: nothing was proved. {error}", file=sys.stderr)
        return 3
    left = prover.unproved()
    if left:
        print("FAILED: left open or assumed:", *left, sep="\n  ", file=sys.stderr)
        return 1
    try:
        with prover.compiled() as folder:
            found = prover.theorems(folder)
    except prover.ProofError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    bad = [theorem for theorem in found if theorem.assumptions != prover.CLOSED]
    for theorem in found:
        print(f"{theorem.file + '.' + theorem.name:44}{theorem.assumptions}")
    if bad or not found:
        print(f"FAILED: {len(bad)} of {len(found)} theorems rest on something", file=sys.stderr)
        return 1
    print(f"proved: {len(found)} theorems, in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
