"""What the modules that can be compiled keep to, so that they do the same compiled (docs/decisions/engine.md).

The compiler takes all that is refused here without a word, or with a warning, and makes something else of it. These tests need no
compiler; ``python -m tests.compiled`` compiles, and runs all the tests against what comes out.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import timely

ROOT = Path(__file__).resolve().parents[1]
SETUP = """
import setuptools
setuptools.setup = lambda **given: print(given)
__file__ = "setup.py"
exec(open("setup.py").read())
"""


def engine() -> list[str]:
    """Return the modules that ``setup.py`` compiles where that is asked for."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "ENGINE":
            modules: list[str] = ast.literal_eval(node.value)
            return modules
    raise AssertionError("setup.py has no ENGINE")


def faults(source: str) -> Iterator[str]:
    """Yield what the compiler would make something else of."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.cause is not None:
            yield f"line {node.lineno}: 'raise ... from' loses the cause: raise error.caused_by(cause)"
        if isinstance(node, ast.FunctionDef) and not any("contextmanager" in ast.unparse(mark) for mark in node.decorator_list):
            for block in ast.walk(node):
                if isinstance(block, ast.Try) and any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(block)):
                    yield f"line {block.lineno}: a generator that is left early is not closed, so nothing may follow its yield"
        if isinstance(node, ast.ClassDef):
            methods = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
            for member in node.body:
                if isinstance(member, ast.Assign) and isinstance(member.value, ast.Name) and member.value.id in methods:
                    yield f"line {member.lineno}: a second name of a method is lost: write a method"


def declared_twice(sources: list[str]) -> Iterator[str]:
    """Yield what a class declares though a base has it: the collector counts that reference twice, and frees no such cycle."""
    classes = {node.name: node for source in sources for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)}

    def declares(node: ast.ClassDef) -> set[str]:
        targets = [each.target for each in ast.walk(node) if isinstance(each, ast.AnnAssign)]
        return {ast.unparse(target).removeprefix("self.") for target in targets if ast.unparse(target).startswith("self.")}

    def above(node: ast.ClassDef) -> Iterator[ast.ClassDef]:
        for base in node.bases:
            result = classes.get(ast.unparse(base).partition("[")[0])
            if result is not None:
                yield result
                yield from above(result)

    for node in classes.values():
        for base in above(node):
            yield from (f"{node.name}.{name} is declared in {base.name} too" for name in declares(node) & declares(base))


def test_no_compiled_class_declares_what_a_base_has() -> None:
    assert list(declared_twice([(ROOT / module).read_text() for module in engine()])) == []


def test_what_is_declared_twice_is_found() -> None:
    sources = [
        "class A(B[int]):\n    def f(self):\n        self.x: int = 1",
        "class B:\n    def g(self):\n        self.x: int = 0",
    ]
    assert list(declared_twice(sources)) == ["A.x is declared in B too"]


@pytest.mark.parametrize("module", engine())
def test_a_module_that_is_compiled_keeps_to_what_the_compiler_does_right(module: str) -> None:
    assert list(faults((ROOT / module).read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    f()\nexcept KeyError as error:\n    raise ValueError from error",
        "def g():\n    try:\n        yield 1\n    finally:\n        f()",
        "class C:\n    def copy(self):\n        return self\n    __copy__ = copy",
    ],
)
def test_what_the_compiler_does_wrong_is_found(source: str) -> None:
    assert len(list(faults(source))) == 1


def test_the_engine_that_runs_is_named() -> None:
    assert timely.compiled == (not str(timely.progress.tracker.__file__).endswith(".py"))


def test_nothing_compiled_lies_in_a_checkout_whose_sources_run() -> None:
    assert timely.compiled or not list((ROOT / "timely").rglob("*.so"))


@pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="Python 3.12 and later come without setuptools")
def test_without_a_compiler_nothing_is_compiled() -> None:
    command = [sys.executable, "-c", SETUP]
    done = subprocess.run(command, cwd=ROOT, env={"CC": "no-such-compiler"}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("{'ext_modules': [], 'setup_requires': [],")


@pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="Python 3.12 and later come without setuptools")
def test_links_of_the_metadata_lead_to_the_home_of_the_project() -> None:
    environment = {"TIMELY_COMPILE": "0", "TIMELY_HOME": "https://example.org/timely/"}
    done = subprocess.run([sys.executable, "-c", SETUP], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    values = ast.literal_eval(re.sub(r"<class [^>]*>", "None", done.stdout))
    targets = re.findall(r'\]\(([^)]+)\)|<img src="([^"]+)"', values["long_description"])
    assert len(targets) > 40
    assert [target for target in targets if not "".join(target).startswith("https://")] == []
    assert values["project_urls"]["Repository"] == "https://example.org/timely"


@pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="Python 3.12 and later come without setuptools")
def test_compiled_code_is_refused_for_an_editable_install() -> None:
    command = [sys.executable, "-c", "import sys; sys.argv = ['setup.py', 'editable_wheel']; exec(open('setup.py').read())"]
    done = subprocess.run(command, cwd=ROOT, env={"TIMELY_COMPILE": "1"}, capture_output=True, text=True)
    assert done.returncode == 1 and "editable" in done.stderr
