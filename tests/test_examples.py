"""The examples run as they stand, as scripts, and print what they are said to."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.script_server import ScriptServer
from tests.support.spark_programs import SparkPrograms
from timely.cli.debian import packages, requirements

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


Run: TypeAlias = Callable[[str], list[str]]


@pytest.fixture
def run(scripts: ScriptServer, tmp_path: Path) -> Run:
    """Return a function that runs an example, and returns the lines that it prints."""

    def lines(name: str) -> list[str]:
        ended = scripts.run(EXAMPLES / f"{name}.py", tmp_path)
        assert (ended.status, ended.stderr) == (0, "")
        assert list(tmp_path.iterdir()) == []
        return ended.stdout.splitlines()

    return lines


def run_on_spark(name: str, directory: Path, spark_programs: SparkPrograms) -> list[str]:
    """The lines that an example with a Spark session prints."""
    path = EXAMPLES / f"{name}.py"
    ended = spark_programs.run(path.read_text(encoding="utf-8"), directory, str(path))
    assert ended.status == 0, ended.stderr
    assert list(directory.iterdir()) == []
    return ended.stdout.splitlines()


def test_every_example_is_tested() -> None:
    tests = [name for name in globals() if name.startswith("test_")]
    examples = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert [name for name in examples if not any(test.endswith(f"_{name}") for test in tests)] == []


def test_word_count(run: Run) -> None:
    lines = run("word_count")
    assert len(lines) == 58
    assert "editors        emacs 105, editor 100, files 46, office 24" in lines
    assert "zope           python 5, object 2, support 2, system 2" in lines


def test_circular_dependencies(run: Run) -> None:
    first, *circles = run("circular_dependencies")
    assert first == "58 circles; the largest:"
    assert circles[0] == "- libruby libruby3.1 rake ruby ruby-rubygems ruby-sdbm ruby3.1"
    assert [len(circle.split()) - 1 for circle in circles] == [7, 6, 5, 5]


@pytest.mark.soak
def test_what_it_pulls_in(run: Run) -> None:
    required = defaultdict(list)
    for package, name in zip(*requirements("depends").select(["package", "requires"]).to_pydict().values(), strict=True):
        required[package].append(name)
    sizes = dict(zip(*packages().select(["package", "installed_kib"]).to_pydict().values(), strict=True))
    installed: set[str] = set()
    for line in run("what_it_pulls_in"):
        step, count, _, mib, *_ = line.replace(",", "").split()
        installed ^= {step.removeprefix("-")}
        reached, waiting = set(installed), list(installed)
        while waiting:
            more = set(required[waiting.pop()]) - reached
            reached |= more
            waiting += more
        needed = [sizes[name] or 0 for name in reached if name in sizes]
        assert int(count) == len(needed)
        assert float(mib) == pytest.approx(sum(needed) / 1024, abs=0.06)
    assert installed == {"supertuxkart"}


def test_connected_components(run: Run) -> None:
    assert run("connected_components") == [
        "depends     64047 rows: 64047 packages in 198 components, the largest of 63364, the next of 29",
        "recommends   1750 rows: 65633 packages in 177 components, the largest of 65060, the next of 30",
        "suggests     4345 rows: 69864 packages in 161 components, the largest of 69363, the next of 18",
    ]


@pytest.mark.spark
def test_streaming_components(tmp_path: Path, spark_programs: SparkPrograms) -> None:
    lines = run_on_spark("streaming_components", tmp_path, spark_programs)
    assert [line.split(" rows:")[0].split()[:2] for line in lines] == [
        [kind, half] for kind in ("depends", "recommends", "suggests") for half in "12"
    ]
    assert [line.partition("rows: ")[2] for line in lines[1::2]] == [
        "64047 packages in 198 components, the largest of 63364, the next of 29",
        "65633 packages in 177 components, the largest of 65060, the next of 30",
        "69864 packages in 161 components, the largest of 69363, the next of 18",
    ]


def test_pagerank(run: Run) -> None:
    first, *ranks = run("pagerank")
    assert first == "64047 packages; the ranks add up to 1.000000"
    assert ranks[:3] == ["0.1455 libc6", "0.1327 libgcc-s1", "0.0593 gcc-12-base"]


def test_event_time(run: Run) -> None:
    *hours, end = run("event_time")
    assert len(hours) == 24
    assert hours[1] == "01:00 to 02:00  9.17 by 67 readings at 02:00, then 9.15 by 72 readings at 02:51"
    assert all("by 72 readings" in line.rpartition(" then ")[2] for line in hours)
    assert end == "1728 readings, 30 of them late, and all are in the last figures"


@pytest.mark.spark
def test_graphs_on_spark(tmp_path: Path, spark_programs: SparkPrograms) -> None:
    assert run_on_spark("graphs_on_spark", tmp_path, spark_programs) == [
        "198 components, the largest of 63364 packages",
        "0.1455 libc6",
        "0.1327 libgcc-s1",
        "0.0593 gcc-12-base",
        "gnome: 1 in 0, 37 in 1, 295 in 2, 495 in 3, 249 in 4, 82 in 5, 36 in 6, 10 in 7, 7 in 8, 3 in 9",
    ]


def test_shortest_paths(run: Run) -> None:
    lines = run("shortest_paths")
    assert lines[0] == "depends: 1215 packages are nearer than before, 1215 are reached from gnome"
    assert [line.split() for line in lines if "gcc" in line] == [["gcc", "not", "reached"], ["gcc", "5.4", "MiB"]]


def test_logistic_regression(run: Run) -> None:
    first, games, tools = run("logistic_regression")
    assert first == "3453 packages, 199 rounds, 90% told right"
    assert games.startswith("game: game ")
    assert tools.startswith("tool: tool ")


def test_L2_collatz(run: Run) -> None:
    rounds = [list(map(int, line.partition(":")[2].split())) for line in run("collatz")]
    assert sum(map(len, rounds)) == 64
    assert len(rounds) == 19
    assert rounds[0] == sorted([4, 1, 10, 2, 16, 3, 22, 4, 28])
    assert rounds[-1] == [1]


def test_diagnostics(run: Run) -> None:
    texts = [text.lower() for text in packages()["description"].to_pylist()]
    words = Counter(word for text in texts for word in re.findall(r"[a-z]{4,}", text))
    top = ", ".join(f"{word} {count:,}" for word, count in sorted(words.items(), key=lambda pair: (-pair[1], pair[0]))[:4])
    assert run("diagnostics") == [
        f"/words/input#0                   read       0 sent {len(texts):7,}",
        f"/words/flat_map#1                read {len(texts):7,} sent {words.total():7,}",
        f"/words/value_counts (local)#2    read {words.total():7,} sent       0",
        "",
        "the counts do not come, since the input /words/input#0 may still send at 0",
        f"it is closed, and here they are: {top}",
        f"by the log, /words/value_counts (local)#2 has read the most: {words.total():,} records",
    ]


def test_L4_barrier(run: Run) -> None:
    assert run("barrier") == ["2 workers passed 1000 rounds, and none was ever ahead of another"]


def test_vertex_two_styles(run: Run) -> None:
    *answers, end = run("vertex_two_styles")
    assert answers == [
        "epoch 0: clock went for 55",
        "epoch 0: lamp went for 30",
        "epoch 1: chair went for 8",
        "epoch 1: lamp went for 9",
    ]
    assert end == "the last revisions are the final answers"


def test_custom_scope(run: Run) -> None:
    totals = {(0, "bolt"): 10 * 3, (0, "nut"): 10 * 2, (1, "nut"): 3 * 5, (2, "bolt"): 7 * 4, (2, "nut"): 1 * 5}
    assert run("custom_scope") == [f"epoch {epoch}: {item} for {total}" for (epoch, item), total in totals.items()]


def test_E10_capture_replay(run: Run) -> None:
    assert run("capture_replay") == [f"day {day}: customer {day + 1} ordered most" for day in range(5)]


def test_recovery_after_a_kill(run: Run) -> None:
    killed, second, alone, verdict, *totals = run("recovery_after_a_kill")
    assert "ended with exit code -9" in killed
    assert second.startswith("began on day 6")
    assert alone.startswith("began on day 0")
    assert verdict == "the totals are the same"
    assert sum(int(line.split()[1]) for line in totals) == sum(day + n for day in range(12) for n in range(20))


def test_exactly_once(run: Run) -> None:
    assert run("exactly_once") == [
        line
        for day, kill in enumerate(("before", "after"))
        for line in (
            f"day {day}: killed {kill} it wrote (WorkerError)",
            f"day {day}: complete",
            f"day {day}: the table is equal to the query over all orders",
        )
    ]


def smooth(n: int) -> bool:
    """Whether no prime above 5 divides n."""
    for prime in (2, 3, 5):
        while n % prime == 0:
            n //= prime
    return n == 1


def test_custom_timestamp(run: Run) -> None:
    (line,) = run("custom_timestamp")
    assert list(map(int, line.split())) == [n for n in range(1, 61) if smooth(n)]
