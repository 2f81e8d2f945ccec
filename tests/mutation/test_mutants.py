"""The faults that the mutation run puts in: each is in a module that compiles, and each kind is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.mutants import mutants

PACKAGE = Path(__file__).parents[2] / "timely" / "progress"


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
    text = (PACKAGE / "engine.py").read_bytes()
    found = mutants("engine.py", text)
    assert len(found) > 200
    for mutant in found:
        changed = mutant.apply(text)
        assert changed != text
        compile(changed, "engine.py", "exec")
