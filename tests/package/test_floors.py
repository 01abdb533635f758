"""Imports run one way: a lower floor never knows a higher one."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import machinery
from pathlib import Path

import pytest

import kernelrt

PACKAGE = Path(kernelrt.__file__).parent
COMPILED_ENDS = tuple(machinery.EXTENSION_SUFFIXES)

#: Floors from the bottom; a module may import from its own number or a lower one.
FLOORS = {
    "_version": 0, "dtype": 0, "errors": 0, "native": 0, "util": 0,
    "_dispatch": 1, "ir": 1, "device": 2, "threads": 2,
    "schedule": 3, "loops": 3, "backend": 4, "runtime": 5, "tensor": 6,
    "nn": 7, "jit": 7, "data": 7, "distributions": 7, "func": 7, "linalg": 7, "array_api": 7,
    "optim": 7, "tune": 8, "viewer": 8, "cli": 9, "__main__": 9, "__init__": 9,
}  # fmt: skip
#: Rooms of one floor that still must not know each other.
APART = {("schedule", "loops"), ("loops", "schedule")}
#: The one name of a higher floor: the backend of a device, imported when the device is opened.
PLUGGED_IN = {("device/registry.py", "backend")}
#: These take the names of modules to import.
BY_NAME = {"Module", "load", "_of_backend"}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Dotted names that a file imports, now or later, but not for types alone.

    ``from kernelrt.a import b`` gives ``kernelrt.a.b``, which may be a module or a name in one.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in BY_NAME:
            found |= {str(a.value) for a in node.args if isinstance(a, ast.Constant)}
    return {name for name in found if name.startswith("kernelrt.")}


def imports(path: Path) -> set[str]:
    """Top-level rooms of kernelrt that a file imports."""
    return {name.split(".")[1] for name in imported(path)} & ROOMS


FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py" or p.parent != PACKAGE)
#: An installed package has no .pyx files, so compiled modules are found by their suffix.
COMPILED = {p.name.split(".")[0] for p in PACKAGE.iterdir() if p.name.endswith(COMPILED_ENDS)}
ROOMS = {room_of(p) for p in FILES} | COMPILED


#: File names that stand in two folders, as users import both modules by that name.
TWICE = {"linalg.py", "swa_utils.py"}


def test_file_names_tell_files_apart():
    names = [p.name for p in FILES if p.name != "__init__.py"]
    assert {n for n in names if names.count(n) > 1} == TWICE


#: Names of modules that say nothing to people from outside; the field has others.
COINED = {
    "abreast", "candidates", "choosing", "chunk_bytes", "course", "crop", "cycles", "draft",
    "fetches", "foreign", "form", "frames", "gates", "handles", "hints", "holders", "kinds",
    "ledger", "length", "lookups", "margins", "marks", "members", "merging", "moves", "next_turn",
    "once", "online", "own", "panels", "pieces", "rare", "reach", "relaid", "rowblocks",
    "skipping", "slopes", "steady", "stored", "summation", "surroundings", "tapers", "totals",
    "traffic", "turned", "variants", "waits", "walks", "watch", "weak", "words", "written",
}  # fmt: skip


def test_coined_names_do_not_come_back():
    stems = {p.relative_to(PACKAGE).as_posix(): p.stem for p in FILES}
    found = [path for path, stem in stems.items() if stem in COINED]
    assert found == ["nn/optim/lr_scheduler/cycles.py"]  # cyclic schedules


#: Names in code that only people from here understand, where they are used, and the field's.
COINED_NAMES = {
    "gate": "predicate", "gates": "predicates", "lent": "scratch_outputs", "turns": "trip_count",
    "slopes": "derivatives", "margins": "paddings", "steady": "invariant", "RegionMap": "",
    "MemberTrace": "", "Ledger": "", "Foreign": "", "Surroundings": "", "BECOMES": "",
    "Verdict": "FusionDecision", "Touches": "AccessMap", "Chain": "Pipeline", "Place": "Point",
}  # fmt: skip
#: Folders of the compiler, in which no other thing has one of these names.
COMPILER = ("backend", "device", "ir", "loops", "runtime", "schedule")


@pytest.mark.parametrize("folder", COMPILER)
def test_coined_names_do_not_come_back_in_code(folder):
    found = {}
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {
                getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "arg", None),
                getattr(node, "name", None),
            }  # fmt: skip
            for name in {n for n in names if isinstance(n, str)} & COINED_NAMES.keys():
                found[f"{path.relative_to(PACKAGE)}: {name}"] = COINED_NAMES[name]
    assert found == {}


def test_every_room_has_a_floor():
    """What has none would be imported from anywhere."""
    assert {*ROOMS, "__init__"} == set(FLOORS), "give it one here and in docs/architecture.md"


@pytest.mark.cases(len(FILES))
@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_imports_only_its_own_floor_and_lower_ones(path):
    room = room_of(path)
    for other in imports(path):
        if (str(path.relative_to(PACKAGE)), other) in PLUGGED_IN:
            continue
        assert FLOORS[other] <= FLOORS[room], f"{room} must not import kernelrt.{other}"
        assert (room, other) not in APART, f"{room} and {other} are separate stages"


#: Circles among modules, imports inside functions counted, and why each is there.
CIRCLES = {
    # A device imports its backend by name when it is opened; see PLUGGED_IN.
    ("device.registry", "backend.cpu"),
    # A recurrent layer runs its steps in a scan, and functional_call takes modules.
    ("nn.recurrent", "func.loops"),
    # A population is called by vmap, and vmap takes populations' tensors.
    ("nn.populations", "func"),
}


def modules() -> dict[str, Path]:
    found = {}
    for path in FILES:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_modules(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """Modules that one imports."""
    names = {other.removeprefix("kernelrt.") for other in imported(path)}
    return {
        other if other in known else other.rpartition(".")[0] for other in names
    } & known.keys() - {name}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Sets of two or more modules each of which imports the others, if by way of others."""
    reach = {name: set(others) for name, others in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    alike = {frozenset({b for b in reach[a] if a in reach[b]} | {a}) for a in graph}
    return [set(some) for some in alike if len(some) > 1]


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [{"a", "b", "c"}]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_modules_import_each_other_in_no_circle():
    known = modules()
    graph = {name: imported_modules(name, path, known) for name, path in known.items()}
    assert {(a, b) for a, b in CIRCLES if b not in graph[a]} == set(), "no longer needed"
    graph = {a: {b for b in others if (a, b) not in CIRCLES} for a, others in graph.items()}
    assert circles(graph) == [], "give it a reason in CIRCLES, or break it"


TENSOR = [
    ".".join(p.relative_to(PACKAGE).with_suffix("").parts)
    for p in FILES
    if p.is_relative_to(PACKAGE / "tensor") and p.stem != "__init__"
]
TENSOR_FOLDERS = sorted({name.rpartition(".")[0] for name in TENSOR})
#: Imports one module while its packages are empty, so that no other module comes before it.
FIRST = """
import importlib, sys, types
package, name, *folders = sys.argv[1:]
for each in ("kernelrt", *folders):
    module = sys.modules[each] = types.ModuleType(each)
    module.__path__ = [package + each.removeprefix("kernelrt").replace(".", "/")]
    above, _, leaf = each.rpartition(".")
    if above:
        setattr(sys.modules[above], leaf, module)
importlib.import_module(name)
"""


@pytest.mark.cases(1 / 8)
@pytest.mark.parametrize("name", TENSOR)
def test_each_module_can_be_imported_first(name):
    """Modules import each other at their top only where that works in any order."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST, str(PACKAGE), f"kernelrt.{name}",
         *(f"kernelrt.{folder}" for folder in TENSOR_FOLDERS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", 0)


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_import_does_not_load_llvm_or_any_peer():
    loaded = run("import kernelrt, sys; print(*sorted(sys.modules))").split()
    unwanted = ("llvmlite", "torch", "jax", "numba", "onnxruntime", "scipy", "matplotlib", "pytest")
    assert not [m for m in loaded if m.split(".")[0] in unwanted]


# Each takes from half a millisecond to seven, of the hundred that an import may take.
SLOW_IMPORTS = (
    "decimal", "difflib", "fractions", "hashlib", "importlib.resources", "ipaddress", "json",
    "pathlib", "secrets", "string", "subprocess", "sysconfig", "tempfile", "urllib.parse",
    "zipfile",
)  # fmt: skip


def loaded_beside_numpy() -> set[str]:
    # Some versions of NumPy load the modules of SLOW_IMPORTS themselves: forget those.
    code = (
        f"import sys, numpy; [sys.modules.pop(name, None) for name in {SLOW_IMPORTS}];"
        "before = set(sys.modules); import kernelrt; print(*sorted(set(sys.modules) - before))"
    )
    return set(run(code).split())


def test_import_does_not_load_what_few_calls_need():
    assert not loaded_beside_numpy().intersection(SLOW_IMPORTS)


def test_import_loads_no_more_modules_than_it_did():
    # A module costs about a third of a millisecond. What a first call needs can wait for it.
    ours = {name for name in loaded_beside_numpy() if name.split(".")[0] == "kernelrt"}
    assert len(ours) <= 190, sorted(ours)
    late = ("array_api", "backend", "data", "distributions", "func", "linalg", "loops", "optim",
            "runtime", "schedule")  # fmt: skip
    assert not [name for name in ours if name.split(".")[1:2] and name.split(".")[1] in late]


def test_building_a_graph_needs_no_compiler():
    code = (
        "import kernelrt as krt, sys;"
        "x = krt.zeros(4, 4); y = (x @ x + 1).relu();"
        "assert y.shape == (4, 4);"
        "print('llvmlite' in sys.modules)"
    )
    assert run(code) == "False"
