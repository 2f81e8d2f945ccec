"""Coq: installed where it is missing, run on the proofs, asked what each theorem rests on.

Everything is compiled from nothing in a directory that is thrown away. A proof that was left open, or an axiom, is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

SOURCES: Final = Path(__file__).resolve().parent / "coq"
CLOSED: Final = "Closed under the global context"
SECONDS: Final = 300
"""For one file: far more than any needs."""

_OPEN: Final = re.compile(r"\b(Admitted|admit|Axioms?|Parameters?|Conjectures?|give_up|bypass_check|Unset +Guard +Checking)\b")
_COMMENT: Final = re.compile(r"\(\*.*?\*\)", re.DOTALL)
_THEOREM: Final = re.compile(r"^Theorem (\w+)", re.MULTILINE)


class ProofError(Exception):
    """What is wrong with the proofs, or with Coq."""


class NoProverError(ProofError):
    """Coq is not there and cannot be installed."""


@attrs.frozen
class Theorem:
    """A theorem by its file and name, with its statement and what it rests on, as Coq prints them."""

    file: str
    name: str
    statement: str
    assumptions: str


def install() -> str:
    """Return the version of Coq, installed with ``apt-get`` if need be. ``NoProverError`` if that is not possible."""
    if shutil.which("coqc") is None:
        root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        if shutil.which("apt-get") is None:
            raise NoProverError("Coq is not installed, and there is no apt-get to install it with: install Coq 8.16 or later")
        if root and shutil.which("sudo") is None:
            raise NoProverError("Coq is not installed, and only root can install it: apt-get install coq")
        for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", "--no-install-recommends", "coq"]):
            done = subprocess.run([*root, *command], capture_output=True, text=True, check=False)
        if shutil.which("coqc") is None:
            raise NoProverError(f"Coq is not installed, and apt-get could not install it: {done.stderr.strip()[-500:]}")
    return _run(["coqc", "--version"], SOURCES).splitlines()[0]


def order() -> list[str]:
    """Return the names of the files, each after those that it imports. ``ProofError`` for a circle."""
    needs = {
        path.stem: set(re.findall(r"^From Timely Require (?:Import )?([\w ]+)\.", path.read_text("utf-8"), re.MULTILINE))
        for path in sorted(SOURCES.glob("*.v"))
    }
    needs = {name: {part for line in lines for part in line.split()} for name, lines in needs.items()}
    collected: list[str] = []
    while len(collected) < len(needs):
        ready = [name for name in needs if name not in collected and needs[name] <= set(collected)]
        if not ready:
            raise ProofError(f"these files import each other, or what is not there: {sorted(set(needs) - set(collected))}")
        collected += ready
    return collected


def unproved() -> list[str]:
    """Return what the sources leave open or assume, as ``file: word``."""
    return [
        f"{path.name}: {word}"
        for path in sorted(SOURCES.glob("*.v"))
        for word in _OPEN.findall(_COMMENT.sub("", path.read_text("utf-8")))
    ]


@contextmanager
def compiled() -> Iterator[Path]:
    """Compile all proofs in a new directory, which goes away afterwards."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name in order():
            shutil.copy(SOURCES / f"{name}.v", folder)
            _run(["coqc", "-q", "-Q", ".", "Timely", f"{name}.v"], folder)
        yield folder


def evaluate(folder: Path, script: str) -> str:
    """Return what Coq prints for a script that may import the compiled proofs."""
    (folder / "Query.v").write_text(script, "utf-8")
    return _run(["coqc", "-q", "-Q", ".", "Timely", "-noglob", "Query.v"], folder)


def theorems(folder: Path) -> list[Theorem]:
    """Return every theorem of the compiled proofs."""
    collected: list[Theorem] = []
    for name in order():
        names = _THEOREM.findall(_COMMENT.sub("", (SOURCES / f"{name}.v").read_text("utf-8")))
        if not names:
            continue
        lines = [f"From Timely Require {name}.", "Set Printing Width 110."]
        for theorem in names:
            lines += ["Eval compute in tt.", f"Check Timely.{name}.{theorem}."]
            lines += ["Eval compute in tt.", f"Print Assumptions Timely.{name}.{theorem}."]
        parts = evaluate(folder, "\n".join(lines)).split("     = tt\n     : unit\n")[1:]
        if len(parts) != 2 * len(names):
            raise ProofError(f"Coq printed {len(parts)} answers about the {len(names)} theorems of {name}.v")
        collected += [
            Theorem(name, theorem, statement.strip(), rests.strip())
            for theorem, statement, rests in zip(names, parts[::2], parts[1::2], strict=True)
        ]
    return collected


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise ProofError(f"{' '.join(command)} was not done after {SECONDS} seconds") from None
    if done.returncode:
        raise ProofError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
