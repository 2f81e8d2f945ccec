"""The mutation run: ``python -m tests.mutation`` puts one small fault at a time into the code, and sees whether a test objects.

It works on copies of the tree, one fault at a time in each. For each fault it runs the tests that call the function
it is in, the quickest first, until one fails; and once, before all else, every test without any fault, in the same way,
of which none may fail. The invariant: a run is a function of the tree, the seed and the options, but for the time limits.
It prints each survivor, the score for each module as a Markdown table, and ends with status 1 if a survivor has no
explanation in ``explained.toml``. What has become of a fault goes to a file at once, from which an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutation.mutants import Key, Mutant, mutants
from tests.mutation.selection import Chosen, Record, Recorder

ROOT = Path(__file__).parents[2]


@attrs.frozen
class Area:
    """Code whose faults the same tests are to notice: files or folders, both."""

    mutated: list[str]
    tests: list[str]


AREAS = {
    "engine": Area(
        ["timely/progress", "timely/scopes"],
        [
            *("timely/progress", "timely/scopes", "tests/progress", "tests/scopes", "tests/properties", "tests/conformance"),
            *("tests/dataflow", "tests/testing/test_custom_timestamps.py"),
        ],
    ),
    "dataflow": Area(["timely/dataflow"], ["timely/dataflow", "timely/operators", "tests/dataflow", "tests/operators"]),
    "operators": Area(["timely/operators"], ["timely/operators", "tests/operators"]),
    "worker": Area(["timely/worker"], ["timely/worker", "tests/worker"]),
    "inspect": Area(["timely/inspect"], ["timely/inspect", "tests/inspect"]),
    "spark": Area(["timely/spark"], ["tests/spark"]),
}
"""Of ``spark``, what runs without a session is tried by tests that need none."""
EXPLAINED = Path(__file__).parent / "explained.toml"
OPTIONS = ["-q", "-x", "--tb=short", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:warnings"]
OPTIONS += ["-o", "faulthandler_timeout=0", "-m", "not soak and not spark", "--hypothesis-profile=mutation"]
PROFILE = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
"""The same cases for every mutant, few of them, and none shrunk."""
BUDGET = 30.0
"""How many CPU seconds of tests a mutant is given, the quickest tests first."""


def main() -> int:
    options = _options()
    settings.register_profile("mutation", PROFILE)
    drawn = _sample(options)
    with tempfile.TemporaryDirectory() as folder:
        history = options.record or Path(folder) / "record"
        done = read_record(history)
        left = [mutant for mutant in drawn if mutant.key not in done]
        if left:
            _try_all(Path(folder).resolve(), left, history, options)
        done = read_record(history)
    outcomes = Counter((mutant.module, done[mutant.key]) for mutant in drawn)
    _report(outcomes)
    return int(any(outcome == "survived" for _, outcome in outcomes))


def read_record(history: Path) -> dict[Key, str]:
    """Return what has become of which mutant; explained are the survivors that ``explained.toml`` speaks of."""
    known = tomllib.loads(EXPLAINED.read_text())["mutant"]
    explained = {(entry["module"], entry["function"], entry["line"], entry["change"]) for entry in known}
    done: dict[Key, str] = {}
    for line in history.read_text().splitlines() if history.exists() else []:
        module, function, row, change, outcome = json.loads(line)
        key = (module, function, row, change)
        done[key] = "explained" if outcome == "survived" and key in explained else outcome
    return done


def _try_all(folder: Path, left: list[Mutant], history: Path, options: argparse.Namespace) -> None:
    """Try mutants in as many processes as the options say, each in a tree of its own, and add what becomes of them."""
    trees = [folder / f"tree{job}" for job in range(options.jobs)]
    for tree in trees:
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.so", "build", "dist"))
    records = _record(trees[0], AREAS[options.area].tests)
    print(f"{len(records)} tests, {sum(record.seconds for record in records.values()):.0f} s of processor time", flush=True)
    if _test(trees[0], records) != "survived":
        raise SystemExit(f"the tests that passed fail without a mutant: {(trees[0] / 'output').read_text()[-2000:]}")
    children = []
    for job, tree in enumerate(trees):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _try_some(tree, left[job :: options.jobs], records, history, options.verbose)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        raise SystemExit("not every mutant was tried: see above")


def _try_some(tree: Path, left: list[Mutant], records: dict[str, Record], history: Path, verbose: bool) -> None:
    for mutant in left:
        outcome = _try(tree, mutant, records)
        with history.open("a") as file:
            file.write(json.dumps([*mutant.key, outcome]) + "\n")
        if verbose or read_record(history)[mutant.key] == "survived":
            text = f"{outcome}: {mutant.module}:{mutant.number} {mutant.function}: `{mutant.line}`\n    {mutant.change}\n"
            os.write(1, text.encode())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=14, metavar="N", help="mutants of each module, drawn at random (14)")
    parser.add_argument("--all", action="store_true", help="all mutants instead")
    parser.add_argument("--seed", type=int, default=0, help="what the sample depends on (0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many mutants are tried at a time (1)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="add to this file; what it tells of is not tried again")
    parser.add_argument("--verbose", action="store_true", help="print the killed as well")
    parser.add_argument("--area", choices=AREAS, default="engine", help="which part of the library, with its tests (engine)")
    parser.add_argument("modules", nargs="*", help="only modules whose path contains one of these")
    return parser.parse_args()


def _sample(options: argparse.Namespace) -> list[Mutant]:
    found = []
    for path in sorted(path for package in AREAS[options.area].mutated for path in (ROOT / package).rglob("*.py")):
        module = str(path.relative_to(ROOT))
        there = mutants(module, path.read_bytes())
        if not options.all and len(there) > options.sample:
            there = random.Random(f"{options.seed} {module}").sample(there, options.sample)
        if not options.modules or any(part in module for part in options.modules):
            found += sorted(there, key=lambda mutant: mutant.start)
    return found


def _record(tree: Path, tests: list[str]) -> dict[str, Record]:
    """Run all tests once, and return what is known of each that passes, the quickest first."""
    result = tree / "records"

    def record() -> int:
        recorder = Recorder(tree)
        status = pytest.main([*(option for option in OPTIONS if option != "-x"), *tests], [recorder])
        known = {name: (record.seconds, sorted(record.called)) for name, record in recorder.records.items()}
        result.write_text(repr((known, recorder.failed)))
        return 0 if recorder.records else int(status)

    _run(tree, record)
    known, failed = ast.literal_eval(result.read_text())
    records = {name: Record(seconds, set(called)) for name, (seconds, called) in known.items()}
    for name in failed:
        print(f"left out, for it fails without a mutant: {name}", flush=True)
    quickest = sorted(records, key=lambda name: records[name].seconds)
    return {name: records[name] for name in quickest if name not in failed}


def _try(tree: Path, mutant: Mutant, records: dict[str, Record]) -> str:
    chosen = _choose(mutant, records)
    if not chosen:
        return "survived"
    path = tree / mutant.module
    original = path.read_bytes()
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()
    try:
        path.write_bytes(mutant.apply(original))
        return _test(tree, chosen)
    finally:
        path.write_bytes(original)


def _choose(mutant: Mutant, records: dict[str, Record]) -> dict[str, Record]:
    """Return the tests to run for a mutant: those that call its function, or where it is called before any test, its module."""
    first, last = mutant.lines
    if not any(_calls(record, mutant.module, first, last) for record in records.values()):
        first, last = 0, sys.maxsize
    chosen: dict[str, Record] = {}
    seconds = 0.0
    for name, record in records.items():
        if _calls(record, mutant.module, first, last):
            seconds += record.seconds
            if chosen and seconds > BUDGET:
                break
            chosen[name] = record
    return chosen


def _calls(record: Record, module: str, first: int, last: int) -> bool:
    """Return whether a test calls a function that begins in these lines of a module."""
    return any(where == module and first <= line <= last for where, line in record.called)


def _test(tree: Path, records: dict[str, Record]) -> str:
    """Run tests in this order, up to the first that fails or takes far longer than it did."""
    # The package first: a module of it that pytest is given before it has been imported would be there twice.
    files = list(dict.fromkeys(["timely/__init__.py", *(name.partition("::")[0] for name in records)]))
    limits = {name: 3 + 4 * record.seconds for name, record in records.items()}
    return _run(tree, lambda: int(pytest.main([*OPTIONS, *files], [Chosen(limits)])))


def _run(tree: Path, action: Callable[[], int]) -> str:
    """Run an action in a process of its own, in the copy of the tree; return ``survived``, ``killed`` or ``timed out``."""
    child = os.fork()
    if child == 0:
        _enter(tree)
        status = int(pytest.ExitCode.INTERNAL_ERROR)
        try:
            status = action()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "timed out"
    match os.WEXITSTATUS(status):
        case pytest.ExitCode.OK:
            return "survived"
        case pytest.ExitCode.TESTS_FAILED | pytest.ExitCode.INTERRUPTED:  # interrupted: a file cannot be imported any more
            return "killed"
        case code:
            raise SystemExit(f"pytest ended with {code}: {(tree / 'output').read_text()[-2000:]}")


def _enter(tree: Path) -> None:
    """Make this process one that knows of the copy of the tree only, writes nothing, and ends in time."""
    output = os.open(tree / "output", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for descriptor in (0, 1, 2):
        os.dup2(output, descriptor)
    os.chdir(tree)
    sys.path[:] = [str(tree), *(entry for entry in sys.path if Path(entry).resolve() != ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def _report(outcomes: Counter[tuple[str, str]]) -> None:
    columns = ["killed", "timed out", "explained", "survived"]
    print("| module | mutants | killed | of them by the clock | explained | survived |\n| --- | --- | --- | --- | --- | --- |")
    rows: dict[str, Any] = {module: [outcomes[module, column] for column in columns] for module, _ in sorted(outcomes)}
    rows["together"] = [sum(row[place] for row in rows.values()) for place in range(len(columns))]
    for module, (killed, timed_out, explained, survived) in rows.items():
        total = killed + timed_out + explained + survived
        print(f"| {module} | {total} | {killed + timed_out} | {timed_out} | {explained} | {survived} |")


if __name__ == "__main__":
    sys.exit(main())
