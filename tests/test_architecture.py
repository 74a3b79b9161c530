"""The house: which rooms there are, which may enter which, and what is shipped to a pod."""

from __future__ import annotations

import ast
import io
import sys
import zipfile
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import orchestrator
from orchestrator.pod import bundle

ROOT = Path(orchestrator.__file__).parent
# From the ground up: a room may enter those before it. What stands on one line may not enter its neighbours.
STOREYS = (
    ("shared",),
    ("verdict",),
    ("agent", "errors"),
    ("files", "home", "interrupts", "text"),
    ("told",),
    ("config",),
    ("git", "pairing", "plan"),
    ("results", "ui"),
    ("figures",),
    ("report",),
    ("store",),
    ("transports",),
    ("pod",),
    ("launchers",),
    ("tasks",),
    ("candidates",),
    ("completion",),
    ("options",),
    ("commands",),
    ("cli",),
    ("__main__",),
)
# Of the agent, by the same rule.
AGENT = "agent/"
AGENT_STOREYS = (
    ("holds", "injected", "layout", "offered"),
    ("host",),
    ("lock",),
    ("runs",),
    ("git",),
    ("env",),
    ("evidence", "probe", "tidy"),
    ("run",),
    ("serve", "supplied"),
    ("commands",),
    ("__main__",),
)
# Of what enters a stage's processes, by the same rule; the modules that enter, `guard` and the plugin, may use all.
INJECTED = "agent/injected/"
INJECTED_STOREYS = (
    ("files", "frames", "hooks", "stage"),
    ("source",),
    ("imports", "marks"),
    ("checks",),
    ("processes",),
    ("kernels", "programs", "runners"),
    ("sabotage",),
)


def levels(storeys: tuple[tuple[str, ...], ...]) -> dict[str, int]:
    return {room: level for level, rooms in enumerate(storeys) for room in rooms}


LEVEL, AGENT_LEVEL, INJECTED_LEVEL = levels(STOREYS), levels(AGENT_STOREYS), levels(INJECTED_STOREYS)
ON_THE_POD = set(bundle.SHIPPED)
# Files that run in Pythons of their own: they know nothing of the package that they came in.
LONERS = {"agent/env/verify.py", "agent/env/triton_kernel.py"}
FOREIGN = {
    "agent/injected/pytest_plugin.py": {"pytest"},
    "agent/injected/sabotage/attempt.py": {"pytest"},
    "agent/injected/runners/junit.py": {"pytest"},
    "agent/injected/runners/items.py": {"pytest"},
    "agent/injected/runners/written.py": {"pytest"},
    "agent/injected/sabotage/spoil.py": {"numpy", "torch"},  # where a process has them
    "agent/env/triton_kernel.py": {"triton"},
}
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
LONERS |= {module for module in MODULES if module.startswith((INJECTED, "agent/offered/"))}


def imports(module: str) -> Iterator[tuple[str, ...]]:
    """The modules that `module` imports, each as its parts; what others wrote may be relative within itself."""
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if module.startswith(("shared/vendor/", INJECTED)) and node.level in (1, module.count("/") - 1):
                continue
            assert node.level == 0, f"{module}: relative imports hide which room is entered"
            name = tuple((node.module or "").split("."))
            holds_rooms = name in (("orchestrator",), ("orchestrator", "agent"))
            yield from ((*name, alias.name) for alias in node.names) if holds_rooms else (name,)


def room(module: str) -> str:
    return Path(module).parts[0].removesuffix(".py")


def test_every_room_has_a_storey() -> None:
    assert {room(module) for module in MODULES} - {"__init__"} == set(LEVEL)
    inner = {room(module.removeprefix(AGENT)) for module in MODULES if module.startswith(AGENT)}
    assert inner - {"__init__"} == set(AGENT_LEVEL)


@pytest.mark.parametrize("module", [module for module in MODULES if module != "__init__.py"])
def test_imports_lead_down(module: str) -> None:
    here = room(module)
    for parts in imports(module):
        if parts[0] == "orchestrator" and parts[1] in LEVEL and parts[1] != here:
            assert LEVEL[parts[1]] < LEVEL[here], f"{module} enters {'.'.join(parts)}"
            assert here in ON_THE_POD or parts[1] != "agent", f"{module} of the laptop reaches into the agent"
        elif parts[:2] == ("orchestrator", "agent") and parts[2:]:
            inner = room(module.removeprefix(AGENT))
            assert parts[2] == inner or AGENT_LEVEL[parts[2]] < AGENT_LEVEL[inner], f"{module} enters {'.'.join(parts)}"


def inner_imports(module: str) -> Iterator[str]:
    """What a `module` that is injected enters of its package, by relative imports alone: it has another name there."""
    to_the_top = module.removeprefix(INJECTED).count("/") + 1
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == to_the_top:
            yield from [node.module.split(".")[0]] if node.module else (alias.name for alias in node.names)


@pytest.mark.parametrize("module", [module for module in MODULES if module.startswith(INJECTED)])
def test_imports_of_what_is_injected_lead_down(module: str) -> None:
    here, top = room(module.removeprefix(INJECTED)), len(INJECTED_STOREYS)
    assert here in INJECTED_LEVEL or here in ("__init__", "guard", "pytest_plugin")
    assert all(
        INJECTED_LEVEL.get(entered, top) < INJECTED_LEVEL.get(here, top + 1) for entered in inner_imports(module)
    )


def test_no_module_waits_for_itself() -> None:
    TopologicalSorter({module: set(loaded_by(module)) for module in MODULES}).prepare()  # which names a cycle


def loaded_by(module: str) -> Iterator[str]:
    """The modules that the imports of a `module` name, in functions too; not what annotations alone need."""
    tree = ast.parse((ROOT / module).read_text())
    guarded = (n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    unread = {inner for guard in guarded for inner in ast.walk(guard)}
    package = ("orchestrator", *Path(module).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in unread:
            above = package[: len(package) - node.level + 1] if node.level else ()
            name = (*above, *(node.module or "").split(".")) if node.module else above
            for alias in node.names:
                yield from files_of((*name, alias.name))[-1:]


@pytest.mark.parametrize("module", [module for module in MODULES if room(module) in ON_THE_POD])
def test_what_is_shipped_is_python_3_8_of_the_standard_library(module: str) -> None:
    ast.parse((ROOT / module).read_text(), feature_version=(3, 8))
    allowed = {*sys.stdlib_module_names, *FOREIGN.get(module, ()), *(() if module in LONERS else ("orchestrator",))}
    if module == "agent/env/verify.py":  # what it is to try is imported by name
        allowed |= {"torch", "triton_kernel"}
    assert {parts[0] for parts in imports(module)} <= allowed


@pytest.mark.parametrize("module", [module for module in MODULES if room(module) in ON_THE_POD])
def test_what_is_shipped_subscripts_no_type_while_it_is_imported(module: str) -> None:
    """Python 3.8 knows `dict[str, int]` in annotations only, which nobody evaluates."""
    body = ast.parse((ROOT / module).read_text()).body
    abstract = {
        alias.name
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module == "collections.abc"
        for alias in node.names
    }
    evaluated = [node.value for node in body if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value]
    evaluated += [base for node in body if isinstance(node, ast.ClassDef) for base in node.bases]
    subscripted = {
        node.value.id
        for value in evaluated
        for node in ast.walk(value)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
    }
    assert not subscripted & (abstract | {"dict", "list", "tuple", "set", "frozenset", "type"})


def test_what_every_start_imports_is_little() -> None:
    """A verb is loaded when it is called: `orchestrator.commands` names them, and `load` is the one way in."""
    reached = {"cli.py"}
    while more := {found for module in reached for parts in imports(module) for found in files_of(parts)} - reached:
        reached |= more
    little = {"cli", "commands", "errors", "interrupts", "text", "__init__", "shared"}
    assert {room(module) for module in reached} == little
    assert {module for module in reached if room(module) == "commands"} == {"commands/__init__.py"}
    assert {parts[0] for module in reached for parts in imports(module)} & {"pydantic", "yaml", "packaging"} == set()


def files_of(parts: tuple[str, ...]) -> list[str]:
    """The tool's own modules that are loaded with that one."""
    if parts[0] != "orchestrator":
        return []
    paths = ["/".join(parts[1:end]) for end in range(1, len(parts) + 1)]
    names = [name for path in paths for name in (f"{path}.py", f"{path}/__init__.py".lstrip("/"))]
    return [name for name in names if name in MODULES]


def test_exactly_three_packages_are_shipped() -> None:
    with zipfile.ZipFile(io.BytesIO(bundle.build()[0])) as archive:
        shipped = set(archive.namelist())
    expected = {f"orchestrator/{module}" for module in MODULES if room(module) in ("agent", "shared", "verdict")}
    beside = {"__main__.py", "orchestrator/__init__.py", "orchestrator/agent/injected/shell_recorder.bash"}
    assert shipped == {*beside, *expected}


def test_the_library_and_the_tool_do_not_import_each_other() -> None:
    library = ROOT.parent / "nsa"
    assert not [module for module in MODULES if any(parts[0] == "nsa" for parts in imports(module))]
    named = [path for path in library.rglob("*.py") if "orchestrator" in path.read_text()]
    assert not [path for path in named if "import orchestrator" in path.read_text()]
