"""Copies of the package under test in the tree: old versions, stubs, builds of something else."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.honesty.case import Case, lie, truth
from tests.support.stage_cases import Case as StageCase
from tests.support.stage_cases import runs, tests

COPY_FIRST = "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), {!r}))\n"


def _copied(name: str, copy: str, **of_tests: Any) -> StageCase:
    """Tests of the package that a project is called after, of which a copy below the tests is found first."""
    files = {f"{name}/pyproject.toml": f"[project]\nname = '{name}_own'\nversion = '1'\n"}
    files |= {f"{name}/src/{name}_own/__init__.py": "VALUE = 1\n", f"{name}/stubs/{name}_own/__init__.py": copy}
    code = f"from {name}_own import VALUE\ndef test_a(): assert VALUE == 1\n"
    return tests(name, conftest=COPY_FIRST.format("stubs"), source=code, files=files, **of_tests)


OWN = "def add(a, b): return a - b\n"
OLD = "def add(a, b): return a + b\n"
ADDS = "from {0} import add\ndef test_a(): assert add(2, 3) == 5\n"


def _beside(name: str, status: str, reason: str, beside: Mapping[str, str], **of_tests: Any) -> StageCase:
    """Tests of a package under src/, of which no metadata tells; `vendor` is found before it."""
    files = {f"src/{name}_own/__init__.py": OWN, **{f"{name}/{path}": text for path, text in beside.items()}}
    of_tests = {"source": ADDS.format(f"{name}_own"), "conftest": COPY_FIRST.format("vendor"), **of_tests}
    return tests(name, status, reason, files=files, **of_tests)


def _extended(name: str, status: str, reason: str, module: str) -> StageCase:
    """Tests of a package under src/, to whose path a conftest adds another folder, which is looked into first."""
    extends = f"import {name}_own as own\nown.__path__.insert(0, os.path.join(os.path.dirname(__file__), 'more'))\n"
    return tests(
        name,
        status,
        reason,
        ADDS.format(f"{name}_own.{module}"),
        conftest=COPY_FIRST.format("../src") + extends,
        files={
            f"src/{name}_own/__init__.py": "ITS = 1\n",
            f"src/{name}_own/core.py": OWN,
            f"{name}/more/{module}.py": OLD,
        },
    )


def old_wheel(root: Path) -> None:
    """An older version of the package, as a wheel that is committed."""
    with zipfile.ZipFile(root / "old_wheel" / "old.whl", "w") as wheel:
        wheel.writestr("old_wheel_own/__init__.py", OLD)


VARIANT = {
    "src/experiment_model.py": "def build(): return 1\ndef train(): return build()\n",
    "experiments/one/experiment_model.py": "def build(): return 2\ndef train(): return build() + 1\n",
    "experiments/one/train.py": "import experiment_model\nprint('loss', experiment_model.train())\n",
}


def _flat(name: str, status: str, reason: str, copy: str, first: str, place: str) -> StageCase:
    """Tests of a package at the top, of which no metadata tells, and a copy that is to be found first."""
    files = {f"{name}_own/__init__.py": OWN if status != "passed" else OLD, f"{name}/{place}": copy}
    head = "import os, site, sys\nhere = os.path.dirname(__file__)\n" + first.format(name)
    return tests(name, status, reason, ADDS.format(f"{name}_own"), conftest=head, files=files)


_BY_SITE = "site.addsitedir(here + '/vendor')\nsys.path.insert(0, sys.path.pop())\n"
_BY_SPEC = """\
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("{0}_own", here + "/good.py")
sys.modules["{0}_own"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["{0}_own"])
"""
FLAT = [
    ("flat_vendored", "sys.path.insert(0, here + '/vendor')\n", "vendor/flat_vendored_own/__init__.py",
     "a conftest puts a committed copy of a package at the top first"),
    ("flat_by_site", _BY_SITE, "vendor/flat_by_site_own/__init__.py", "the same by site.addsitedir"),
    ("flat_by_spec", _BY_SPEC, "good.py", "a conftest loads another file by the package's name"),
]  # fmt: skip

HONEST = [
    truth(
        _flat("flat_same", "passed", "", OLD, FLAT[0][1], "vendor/flat_same_own/__init__.py"),
        "a conftest puts a committed copy of a package at the top first, which says the same",
    ),
    truth(
        runs("experiment", "passed", "", "python", "experiments/one/train.py", files=VARIANT),
        "an experiment's script has a model beside it that began as a copy of the one under src/",
    ),
    truth(
        _beside("own_helpers", "passed", "", {"own_helpers_own.py": "def add(a, b): return a + b\n"}, conftest=""),
        "tests have a helper beside them that began as a copy of a module under src/",
    ),
    truth(
        _extended("path_extended", "passed", "", "plugin"),
        "a conftest adds a folder of other modules to a package's path",
    ),
    truth(
        _beside(
            "namesake",
            "passed",
            "",
            {"vendor/namesake_own.py": "def make(): return 5\n"},
            source="from namesake_own import make\ndef test_a(): assert make() == 5\n",
        ),
        "a helper beside the tests is named as a package under src/, and is something else",
    ),
    truth(
        _copied("same_copy", "VALUE = 1\n", status="passed", reason=""),
        "a copy of the package in the tree, which says the same, is found first",
    ),
]

LIES = [
    *(
        lie(
            _flat(name, "invalid", f"{name}_own was imported from {name}/{place}", OLD, first, place),
            pretends,
            honest="flat_same",
        )
        for name, first, place, pretends in FLAT
    ),
    lie(
        _extended(
            "path_of_package", "invalid", "path_of_package_own.core was imported from path_of_package/more/", "core"
        ),
        "a conftest adds a folder with an old module of it to the package's path",
        honest="path_extended",
    ),
    lie(
        _beside(
            "old_copy",
            "invalid",
            "old_copy_own was imported from old_copy/vendor/",
            {"vendor/old_copy_own/__init__.py": OLD},
        ),
        "a conftest puts a committed old copy of the package under src/ first",
        honest="namesake",
    ),
    lie(
        _beside(
            "old_beside_latest",
            "invalid",
            "old_beside_latest_own was imported from old_beside_latest/vendor/",
            {"vendor/old_beside_latest_own/__init__.py": OLD, "vendor/latest.py": "VERSION = 1\n"},
            conftest=COPY_FIRST.format("vendor") + "import latest\n",
        ),
        "beside the committed old copy lies a module that is no test, and has the word in its name",
        honest="own_helpers",
    ),
    lie(
        _beside(
            "old_wheel",
            "invalid",
            "old_wheel_own was imported from old_wheel/old.whl/",
            {},
            conftest=COPY_FIRST.format("old.whl"),
        ),
        "a conftest puts a committed wheel of an older version first",
        honest="namesake",
        prepare=old_wheel,
    ),
    lie(
        _beside(
            "flat_copy",
            "invalid",
            "flat_copy_made was imported from flat_copy/flat_copy_made/",
            {
                "pyproject.toml": "[tool.setuptools.packages.find]\nwhere = ['src']\n",
                "src/flat_copy_made/__init__.py": OWN,
                "flat_copy_made/__init__.py": OLD,
            },
            source=ADDS.format("flat_copy_made"),
            conftest=COPY_FIRST.format(""),
        ),
        "a package lies under src/, as the metadata says, and an old one of its name beside that",
        honest="same_copy",
    ),
    lie(
        _copied(
            "other_copy",
            "VALUE = 0 + 1\n",
            status="invalid",
            reason="other_copy_own was imported from other_copy/stubs/",
        ),
        "a stub in the tree takes the place of the package that the project is called after",
        honest="same_copy",
    ),
]

CASES: list[Case] = [*HONEST, *LIES]
