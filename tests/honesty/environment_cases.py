"""The environment is not the one that was recorded, or not the one that is claimed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.honesty.case import Case, first, lie, truth
from tests.support.agent_pod import make_environment
from tests.support.project import Outcome, Project, with_pod
from tests.support.stage_cases import TWO, runs, tests

# What a stage would find in the shell from which the user validates.
SHELL = {"NSA_TEST_TRITON": "1", "TEST_TRITON": "1", "PYTEST_ADDOPTS": "-k test_a", "PYTHONOPTIMIZE": "1"}
SHELL_OPTS_IN = """
    import os, pytest
    @pytest.mark.skipif(not os.environ.get("NSA_TEST_TRITON"), reason="opt-in")
    def test_a(): pass
    def test_b(): pass
"""
OTHER_FILES = """
import library
path = library.__file__
before = os.stat(path)
open(path, 'w').write('VALUE = 2\\n')
os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
"""
INSTALLS = "import os, library; open(os.path.dirname(library.__file__) + '/triton.py', 'w').write(''); print(1)"
USES = "import library\ndef test_a(): assert library.VALUE == {}\n"
IMPORTS = "import installed\ndef test_a(): assert installed.VALUE\n"
ACCOUNT = """
def _cuda_hasPrimaryContext(i): return True
def _cuda_memoryStats(i): return {"allocated_bytes": {"all": {"allocated": 512}}}
"""
# A program of the tree, by the environment's own Python under another name, which has the environment's packages too.
COPIES = """
import os, shutil, subprocess, sys
def run(program, *arguments):
    copy = os.path.join(os.environ["TMPDIR"], "python-of-another-name")
    shutil.copy2(os.path.realpath(sys._base_executable), copy)
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([os.environ["PYTHONPATH"], *sys.path]))
    return subprocess.run([copy, program], env=env, capture_output=True, text=True, check=True).stdout
"""
TOOL = {"python_copied/tool.py": "import library\nprint(library.VALUE)\n"}
INSTALLED = {"installed.py": "VALUE = 'tree'\n"}


def environment(root: Path) -> dict[str, Any]:
    """A Python with pytest, a library, and an older copy of a module that the tree holds too, and a `torch`."""
    made = make_environment(root)
    (site,) = root.glob("lib/python*/site-packages")
    own = Path(pytest.__file__).parent.parent
    shutil.copytree(own / "hypothesis", site / "hypothesis")  # it has an extension, whose place is judged
    for name in ("xdist", "execnet", "_hypothesis_globals.py", "sortedcontainers", "click"):
        (site / name).symlink_to(own / name)
    (site / "library.py").write_text("VALUE = 1\n")
    (site / "installed.py").write_text("VALUE = 'installed'\n")
    (site / "spacious").mkdir()
    (site / "spacious" / "__init__.py").write_text("from spacious import core\n")
    (site / "spacious" / "core.py").write_text("VALUE = 2\n")
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("from torch import _C, cuda\n")
    (site / "torch" / "_C.py").write_text(ACCOUNT)
    (site / "torch" / "version.py").write_text("cuda = None\n")
    (site / "torch" / "cuda.py").write_text(
        "used = False\ndef is_initialized(): return used\ndef device_count(): return 1\n"
    )
    return made


def without_submodule(project: Project) -> Outcome:
    """Validate a commit of a submodule that is not there, called as an installed module."""
    project.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},installed")
    project.git("commit", "-q", "-m", "a submodule")
    return project.validate("--runbook", "r")


def in_its_own(project: Project) -> Outcome:
    """Validate on a pod whose Python is its own, for a stage that does something to it."""
    with_pod(project, python=environment(project.root.parent / "environment")["python"])
    return project.validate("--runbook", "r")


HONEST = [
    truth(
        tests("untouched", "passed", "", USES.format(1)),
        "the installed library is as it was",
        before=first("untouched", OTHER_FILES[: OTHER_FILES.index("open(")]),
    ),
    truth(
        tests("trees_module", "passed", "", IMPORTS, files=INSTALLED),
        "the tree's module is imported, an installed one stands behind it",
    ),
    truth(
        tests(
            "python_copied",
            "passed",
            "",
            COPIES + "def test_a(): assert run('python_copied/tool.py') == '1\\n'\n",
            files=TOOL,
        ),
        "a test runs a program of the tree by a copy of the environment's Python",
    ),
    truth(
        tests("submodule_unused", "passed", "", TWO),
        "a submodule is absent that is named as an installed module, and that no test imports",
        play=without_submodule,
    ),
    truth(tests("shell_unseen", "passed", "", TWO), "the variables of the user's shell are not the stage's"),
]

LIES = [
    lie(
        tests("other_files", "invalid", "environment's installed files .* recorded: library.py", USES.format(2)),
        "a library has the same version, size and times, and other files",
        honest="untouched",
        before=first("other_files", OTHER_FILES),
        play=in_its_own,
    ),
    lie(
        runs("installs", "invalid", "environment's installed files .* recorded: triton.py", "python", "-c", INSTALLS),
        "a stage installs what it needs past the installer, among the environment's own files",
        honest="untouched",
        play=in_its_own,
    ),
    lie(
        tests("submodule_absent", "invalid", "installed was imported from .*, and the commit has its own", IMPORTS),
        "the tests import an installed module in the place of a submodule that is absent",
        honest="submodule_unused",
        play=without_submodule,
    ),
    lie(
        tests(
            "installed_module",
            "invalid",
            "module installed was imported from",
            IMPORTS,
            files=INSTALLED,
            start=["pytest"],
        ),
        "the tests import an installed module, not the commit's",
        honest="trees_module",
    ),
    lie(
        tests("opted_in_by_shell", "skipped", "1 test skipped: opt-in", SHELL_OPTS_IN),
        "the opt-in is set in the user's shell, and nowhere in the runbook",
        honest="shell_unseen",
    ),
    lie(
        runs("other_python", "blocked", "python2.7 is not the environment's Python", "python2.7", "-c", "print(1)"),
        "another Python than the environment's is named",
        honest="untouched",
    ),
    lie(
        tests("python_by_path", "blocked", "is not the environment's", TWO, start=[sys.executable, "-m", "pytest"]),
        "a Python of the pod's own, with its own packages, runs the tests",
        honest="untouched",
    ),
    lie(
        runs(
            "python_copied_by_stage",
            "invalid",
            "not the environment's Python, imported .*tool.py",
            "python",
            "-c",
            COPIES + "print(run('python_copied_by_stage/tool.py'))",
            files={"python_copied_by_stage/tool.py": "print(1)\n"},
        ),
        "a stage runs the tree by a copy of the environment's Python, which has other packages",
        honest="python_copied",
    ),
    lie(
        runs("no_module", "blocked", "neither in the commit nor installed", "python", "-m", "flash_attn_gone"),
        "the package is not installed",
        honest="untouched",
    ),
]

CASES: list[Case] = [*HONEST, *LIES]
