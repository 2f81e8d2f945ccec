"""The faults that the mutation run puts in compile, are of each kind, and those that are explained are there."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.mutation.__main__ import EXPLAINED, read_record
from tests.mutation.mutants import mutants

ROOT = Path(__file__).parents[2]


def changes(body: str) -> list[str]:
    return [mutant.change for mutant in mutants("m.py", f"def f(x, y):\n    {body}\n".encode())]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("f(x)", ["f(x) -> pass"]),
        ("x = y", ["x = y -> pass"]),
        ("x += y", ["x += y -> pass", "x += y -> x -= y"]),
        ("return x + 1", ["return x + 1 -> return None", "x + 1 -> (x - 1)", "1 -> 0"]),
        ("return not x", ["return not x -> return None", "not x -> (x)"]),
        ("return x and True", ["return x and True -> return None", "x and True -> (x or True)", "True -> False"]),
        ("while x: break", ["x -> (not x)", "break -> continue"]),
        ("while x in y: continue", ["x in y -> (x not in y)", "continue -> break"]),
        ("raise ValueError(f'{x + 1}')", ["raise ValueError(f'{x + 1}') -> pass"]),
        ("f(x < y, x < y)", ["f(x < y, x < y) -> pass", "x < y -> (x <= y)", "x < y -> (x <= y) #2"]),
        ("'what it is for'", []),
    ],
)
def test_kinds_of_faults(body: str, expected: list[str]) -> None:
    assert changes(body) == expected


def test_annotations_and_decorators_are_left_alone() -> None:
    text = b"class C:\n    @wrap(1)\n    def f(self, x: Literal[1]) -> Literal[2]:\n        return x\n"
    [mutant] = mutants("m.py", text)
    assert (mutant.function, mutant.lines, mutant.line, mutant.new) == ("C.f", (2, 4), "return x", "return None")


def test_every_mutant_of_a_module_compiles_and_differs() -> None:
    text = (ROOT / "timely" / "progress" / "engine.py").read_bytes()
    found = mutants("engine.py", text)
    assert len(found) > 200
    for mutant in found:
        changed = mutant.apply(text)
        assert changed != text
        compile(changed, "engine.py", "exec")


def test_every_explanation_is_of_a_fault_that_there_is() -> None:
    explained = tomllib.loads(EXPLAINED.read_text())["mutant"]
    keys = [(entry["module"], entry["function"], entry["line"], entry["change"]) for entry in explained]
    assert len(set(keys)) == len(keys)
    there = {mutant.key for module in {key[0] for key in keys} for mutant in mutants(module, (ROOT / module).read_bytes())}
    assert set(keys) <= there, "code was changed: look at these again, and drop what is gone from explained.toml"
    assert all(entry["reason"] for entry in explained)


def test_a_record_tells_what_is_not_to_be_tried_again(tmp_path: Path) -> None:
    entry = tomllib.loads(EXPLAINED.read_text())["mutant"][0]
    known = (entry["module"], entry["function"], entry["line"], entry["change"])
    other = ("m.py", "f", "return 'ä'", "return 'ä' -> return None")
    record = tmp_path / "record"
    assert read_record(record) == {}
    record.write_text("".join(json.dumps(line) + "\n" for line in ([*known, "survived"], [*other, "survived"])))
    assert read_record(record) == {known: "explained", other: "survived"}
    with record.open("a") as file:
        file.write(json.dumps([*other, "killed"]) + "\n")
    assert read_record(record) == {known: "explained", other: "killed"}
