"""The tree that ran is not the commit's: edited, littered, compiled from another one, shadowed from elsewhere."""

from __future__ import annotations

import py_compile
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.honesty.case import Case, first, in_runbook, lie, truth, twice
from tests.support.agent_pod import pytest_stage
from tests.support.project import Outcome, Project
from tests.support.stage_cases import TWO, runs, tests
from tests.support.stage_cases import Case as StageCase

CORE = {"pkg/__init__.py": "", "pkg/core.py": "VALUE = 1\n"}
NEEDS_VALUE = "def test_a():\n    from pkg.core import VALUE\n    assert VALUE == {}\n"
EDIT = "open('pkg/core.py', 'w').write('VALUE = 2\\n')"
REVERT = "def pytest_sessionfinish(): open('pkg/core.py', 'w').write('VALUE = 1\\n')\n"
EDIT_AND_BACK = """
import os, sys
sys.path.insert(0, os.getcwd())
before = open("pkg/core.py").read()
open("pkg/core.py", "w").write("VALUE = 2\\n")
import pkg.core
open("pkg/core.py", "w").write(before)
print("VALUE is", pkg.core.VALUE)
"""
ONLY_READS = "".join(line for line in EDIT_AND_BACK.splitlines(keepends=True) if '"w"' not in line)
NEEDS_BUILT = "import os\ndef test_a(): assert os.path.exists('pkg/core.so')\n"
FORGES_BYTECODE = """
import importlib.util, os, py_compile, tempfile

with tempfile.NamedTemporaryFile("w", suffix=".py") as other:
    other.write("VALUE = 2\\n")
    other.flush()
    place = importlib.util.cache_from_source(os.path.abspath("pkg/core.py"))
    py_compile.compile(other.name, place, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
"""
LEAVES_BYTECODE = """
import importlib.util, py_compile
open('other.py', 'w').write('VALUE = 2\\n')
place = importlib.util.cache_from_source('pkg/core.py')
py_compile.compile('other.py', place, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
"""
COPIED_BACK = """
cp -p pkg/core.py old; echo VALUE = 2 > pkg/core.py
python3 -c 'import pkg.core; print(pkg.core.VALUE)'; cp -p old pkg/core.py
"""
TOUCHES = """
touch pkg/*.py; ln pkg/core.py other.py; rm other.py; chmod g+w pkg/core.py
test -z "$(git status --porcelain -uno)" && git ls-files --error-unmatch pkg/core.py && git diff --exit-code
"""
FAILS = "def test_a(): assert 0\n"
DROPS_FIRST = "def pytest_collection_modifyitems(items): del items[0]\n"
NSA = {"nsa/__init__.py": "VALUE = 'own'\n"}
SHOWS_NSA = "import nsa\nprint(nsa.VALUE)\n"
OTHER_NSA = (
    "os.makedirs('../elsewhere/nsa', exist_ok=True)\nopen('../elsewhere/nsa/__init__.py', 'w').write('VALUE = 2')"
)
COPIED = """
import os, shutil, sys
copy = shutil.copytree("pkg", os.environ["TMPDIR"] + "/copy/pkg")
{}
sys.path.insert(0, os.path.dirname(copy))
from pkg.core import VALUE
print(VALUE)
"""
PATCHES = 'open(copy + "/core.py", "w").write("VALUE = 2\\n")'
ELSEWHERE = {"PYTHONPATH": "../elsewhere"}
EXTENSION = """\
import os, pathlib
built = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"]) / "kernel.so"
if not built.exists():
    source = pathlib.Path("kernel.cu").read_text()
    assert "error" not in source, "kernel.cu does not compile"
    built.parent.mkdir(parents=True, exist_ok=True)
    built.write_text(source)
print(built.read_text())
"""
EXTENDED = {"build.py": EXTENSION, "kernel.cu": "__global__ void ok() {}\n"}


def stale_bytecode() -> bytes:
    """Bytecode that Python takes without a look at the source: VALUE is 2."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "core.py")
        source.write_text("VALUE = 2\n")
        compiled = py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        assert compiled is not None
        return Path(compiled).read_bytes()


def replaced(project: Project) -> Outcome:
    """Validate a commit for which git is told to show another one."""
    bad = project.git("rev-parse", "HEAD")
    good = project.commit({"replaced/test_it.py": TWO})
    project.git("checkout", "-q", bad)
    project.git("replace", bad, good)
    return project.validate("--runbook", "r", "--commit", bad)


def patched_on_pod(project: Project) -> Outcome:
    """Validate, patch the pod's copy of the tree by hand, validate again."""
    assert project.validate("--runbook", "r").exit_code == 1
    tree = project.git("rev-parse", "HEAD^{tree}")
    (project.root.parent / "workdir" / "trees" / tree / "patched_on_pod" / "test_it.py").write_text(TWO)
    return project.validate("--runbook", "r")


def two_commits(project: Project) -> Outcome:
    """Validate a commit that compiles, then one that does not."""
    assert project.validate("--runbook", "r").exit_code == 0
    project.commit({"kernel.cu": "syntax error\n"})
    return project.validate("--runbook", "r")


def linked_to(content: str) -> Callable[[Project], Outcome]:
    """Validate a commit of a link tool.py, or linked/test_it.py, to a file outside that holds `content`."""

    def play(project: Project) -> Outcome:
        outside = project.root.parent / "outside.py"
        outside.write_text(content)
        for link in ("tool.py", "linked/test_it.py"):
            (project.root / link).parent.mkdir(exist_ok=True)
            (project.root / link).symlink_to(outside)
        project.commit()
        return project.validate("--runbook", "r")

    return play


def named_like_a_hash(project: Project) -> Outcome:
    """Validate by the short hash of a commit that fails, where a branch of that name is a commit that passes."""
    bad = project.git("rev-parse", "HEAD")
    project.commit({"branch_like_a_hash/test_it.py": TWO})
    project.git("branch", bad[:7])
    return project.validate("--runbook", "r", "--commit", bad[:7])


PACKED = """
import os, sys, zipfile
archive = os.environ["TMPDIR"] + "/pkg.zip"
with zipfile.ZipFile(archive, "w") as packed:
    for name in ("__init__", "core"):
        packed.writestr(f"pkg/{name}.py", open(f"pkg/{name}.py").read().replace("1", VALUE))
sys.path.insert(0, archive)
from pkg.core import VALUE
print(VALUE)
"""
COMPILED_ONLY = """
import os, py_compile, sys
folder = os.environ["TMPDIR"] + "/compiled/pkg"
os.makedirs(folder)
open(folder + "/other.py", "w").write("VALUE = 2")
py_compile.compile("pkg/__init__.py", folder + "/__init__.pyc")
py_compile.compile(folder + "/other.py", folder + "/core.pyc")
sys.path.insert(0, os.path.dirname(folder))
from pkg.core import VALUE
print(VALUE)
"""
RESHAPED = """
import os, sys
folder = os.environ["TMPDIR"] + "/reshaped/single_module"
os.makedirs(folder)
open(folder + "/__init__.py", "w").write(open("single_module.py").read().replace("1", "2"))
sys.path.insert(0, os.path.dirname(folder))
from single_module import VALUE
print(VALUE)
"""
SPACE = {"spacious/core.py": "VALUE = 1\n"}
VENDORED = {
    "kept_twice/__init__.py": "VALUE = 1\n",
    "vendor/site-packages/kept_twice/__init__.py": "VALUE = 2\n",
    "vendor/site-packages/only_there/__init__.py": "VALUE = 3\n",
}
VENDOR_FIRST = "import sys\nsys.path.insert(0, 'vendor/site-packages')\nimport {0}\nprint({0}.VALUE)\n"
KEPT = {"lib/kept/__init__.py": "VALUE = 'own'\n", "sub/shows_kept.py": "import kept\nprint(kept.VALUE)\n"}
HELPED = {"sub/helped.py": "import helper_of_another\nprint(helper_of_another.VALUE)\n"}
BY_PATH = """
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("impl", "{0}")
impl = module_from_spec(spec)
spec.loader.exec_module(impl)
value = impl.value
print(value())
"""
AS_PROGRAM = """
import runpy
impl = runpy.run_path("{0}")
print(impl["value"]())
"""
AS_TEXT = """
exec(compile(open("{0}").read(), "{0}", "exec"))
print(value())
"""
IMPL = "def value(): return 1\n"
WRITES_IMPL = f"os.makedirs('../elsewhere', exist_ok=True)\nopen('../elsewhere/impl.py', 'w').write({IMPL!r})"
WRITES_PROGRAM = "os.makedirs('../elsewhere', exist_ok=True)\nopen('../elsewhere/on_stdin.py', 'w').write('print(1)')"
OLD_LOG = {"old.log": "===== 5 passed in 0.00s =====\n"}


def _module_elsewhere(name: str) -> str:
    return OTHER_NSA.replace("elsewhere/nsa", f"elsewhere/{name}")


HONEST = [
    truth(
        tests("clean_tree", "passed", "", NEEDS_VALUE.format(1), files=CORE),
        "the stage before it leaves the tree alone",
        before=first("clean_tree", "open('pkg/core.py').read()"),
    ),
    truth(
        runs("reads_only", "passed", "", "python", "-c", ONLY_READS, files=CORE),
        "a stage reads a module and imports it",
    ),
    truth(
        tests("left_an_artifact", "passed", "", TWO),
        "the stage before it leaves its artifact, which it owes, in the tree",
        before=first(
            "left_an_artifact",
            "open('made.txt', 'w').write('1')",
            expect={"artifacts": [{"path": "made.txt", "from": "tree:made.txt"}]},
        ),
    ),
    truth(
        tests("built_and_used", "passed", "", NEEDS_BUILT.replace("core.so", "built.so"), files=CORE),
        "the stage before it declares the .so that it builds",
        before=first("built_and_used", "open('pkg/built.so', 'w').write('x')", builds=["pkg/*.so"]),
    ),
    truth(
        runs("only_touched", "passed", "", "sh", "-c", TOUCHES, files=CORE),
        "a shell touches the commit's files, links one, and asks git whether all is clean",
    ),
    truth(
        runs("own_module", "passed", "", "python", "tool.py", env=ELSEWHERE, files={**NSA, "tool.py": SHOWS_NSA}),
        "another `nsa` is on PYTHONPATH, behind the tree's own",
        before=first("own_module", OTHER_NSA),
    ),
    truth(
        runs(
            "kept_in_lib",
            "passed",
            "",
            "python",
            "sub/shows_kept.py",
            env={"PYTHONPATH": "lib:../elsewhere"},
            files=KEPT,
        ),
        "another package of the name of one under lib/ lies on PYTHONPATH, behind it",
        before=first("kept_in_lib", _module_elsewhere("kept")),
    ),
    truth(
        runs("packed_as_it_is", "passed", "", "python", "-c", PACKED.replace("VALUE)", "'1')", 1), files=CORE),
        "a zip of the tree's package, as it is, is used from $TMPDIR",
    ),
    truth(
        tests(
            "space_beside",
            "passed",
            "",
            "import spacious\ndef test_a(): assert spacious.core\n",
            files={"spacious/example.py": "VALUE = 1\n"},
        ),
        "a folder of examples is called as an installed package, which is what is tested",
    ),
    truth(
        runs("vendored", "passed", "", "python", "-c", VENDOR_FIRST.format("only_there"), files=VENDORED),
        "a committed folder site-packages has what the commit has nowhere else",
    ),
    truth(
        runs(
            "helper_allowed",
            "passed",
            "",
            "python",
            "sub/helped.py",
            env=ELSEWHERE,
            files=HELPED,
            expect={"artifacts": [{"path": "helper_allowed.txt", "from": "stdout"}], "outside": ["/*/elsewhere"]},
        ),
        "a module comes from a folder that the runbook allows under `outside`",
        before=first("helper_allowed", _module_elsewhere("helper_of_another")),
    ),
    truth(
        runs("own_by_path", "passed", "", "python", "-c", BY_PATH.format("sub/impl.py"), files={"sub/impl.py": IMPL}),
        "a program loads a file of the commit past the imports",
    ),
    truth(
        runs("own_on_stdin", "passed", "", "bash", "-c", "python - < sub/own.py", files={"sub/own.py": "print(1)\n"}),
        "a program of the commit comes on stdin",
    ),
    truth(
        runs("shows_an_old_log", "passed", "", "python", "-c", "print('then:', open('old.log').read())", files=OLD_LOG),
        "a stage shows the committed log of an older pytest",
    ),
    truth(
        runs("compiled_again", "passed", "", "python", "build.py", files=EXTENDED),
        "the extension was compiled by an earlier run from the very same tree",
        play=twice,
    ),
    truth(
        tests("as_committed", "passed", "", TWO, files={"as_committed/.gitattributes": "test_it.py export-ignore\n"}),
        "the tests pass as they were committed",
    ),
]

LIES = [
    lie(
        tests("edited_by_a_stage", "failed", "test_a failed", NEEDS_VALUE.format(2), files=CORE),
        "a stage edits the tree, and the next one's tests pass",
        honest="clean_tree",
        before=first("edited_by_a_stage", EDIT),
    ),
    lie(
        tests("edit_reverted", "failed", "test_a failed", NEEDS_VALUE.format(2), files=CORE, conftest=REVERT),
        "the edit of an earlier stage is reverted before the run ends",
        honest="clean_tree",
        before=first("edit_reverted", EDIT),
    ),
    lie(
        runs("reverted_at_once", "invalid", "pkg/core.py", "python", "-c", EDIT_AND_BACK, files=CORE),
        "one stage edits a module, runs it and sets it back",
        honest="reads_only",
    ),
    lie(
        tests(
            "edits_its_test",
            "invalid",
            "edits_its_test/test_it.py",
            "import pathlib\ndef test_a(): pathlib.Path(__file__).write_text('def test_a(): pass')\n",
        ),
        "a test rewrites its own file",
        honest="clean_tree",
        before=first("edits_its_test", "pass"),
    ),
    lie(
        runs("head_moved", "invalid", ".git/HEAD", "sh", "-c", "echo 4106f1b | tee .git/HEAD"),
        "a stage moves the tree's HEAD to another commit",
        honest="clean_tree",
        before=first("head_moved", "pass"),
    ),
    lie(
        tests(
            "stray_conftest",
            "failed",
            "test_a failed",
            FAILS + TWO[19:],
            files={"stray_conftest/.gitignore": "conftest.py\n"},
        ),
        "a stage leaves an ignored conftest.py that drops the failing test of the next one",
        honest="left_an_artifact",
        before=first("stray_conftest", f"open('stray_conftest/conftest.py', 'w').write({DROPS_FIRST!r})"),
    ),
    lie(
        tests("stray_extension", "failed", "test_a failed", NEEDS_BUILT, files={**CORE, ".gitignore": "*.so\n"}),
        "a stage leaves an ignored .so in the tree, which it does not declare, and the next one's tests live on it",
        honest="built_and_used",
        before=first("stray_extension", "open('pkg/core.so', 'w').write('x')"),
    ),
    lie(
        tests("stray_bytecode", "failed", "test_a failed", NEEDS_VALUE.format(2), files=CORE),
        "a stage leaves bytecode in the place of a module",
        honest="left_an_artifact",
        before=first("stray_bytecode", LEAVES_BYTECODE),
    ),
    lie(
        runs("copied_back", "invalid", "set back: pkg/core.py", "sh", "-c", COPIED_BACK, files=CORE),
        "a shell puts another module in the place of the commit's, runs it, and copies the old one back with its times",
        honest="only_touched",
    ),
    lie(
        tests(
            "ignored_conftest", "failed", "test_a failed", FAILS, files={"ignored_conftest/.gitignore": "conftest.py\n"}
        ),
        "an ignored conftest.py in the working tree lets the tests pass on the laptop",
        honest="as_committed",
        beside={"ignored_conftest/conftest.py": DROPS_FIRST.encode()},
    ),
    lie(
        tests(
            "stale_bytecode",
            "failed",
            "test_a failed",
            NEEDS_VALUE.replace("pkg", "stale").format(2),
            files={"stale/__init__.py": "", "stale/core.py": "VALUE = 1\n", "stale/.gitignore": "__pycache__\n"},
        ),
        "stale bytecode in the working tree passes where the source fails",
        honest="clean_tree",
        beside={f"stale/__pycache__/core.{sys.implementation.cache_tag}.pyc": stale_bytecode()},
    ),
    lie(
        tests(
            "forged_bytecode",
            "failed",
            "test_a failed",
            NEEDS_VALUE.format(2),
            files={**CORE, "forged_bytecode/conftest.py": FORGES_BYTECODE},
        ),
        "a conftest leaves bytecode that Python takes without a look at the source beside it",
        honest="clean_tree",
    ),
    lie(
        tests("fixed_in_place", "failed", "test_a failed", FAILS),
        "the fix was made in place and never committed",
        honest="as_committed",
        beside={"fixed_in_place/test_it.py": TWO.encode()},
    ),
    lie(
        tests("replaced", "failed", "test_a failed", FAILS),
        "git is told to show another commit in its place",
        honest="as_committed",
        play=replaced,
    ),
    lie(
        tests(
            "export_ignored",
            "failed",
            "test_a failed",
            FAILS,
            "export_ignored/test_b.py",
            files={"export_ignored/.gitattributes": "test_it.py export-ignore\n", "export_ignored/test_b.py": TWO},
        ),
        "export-ignore would leave the failing test out of an archive",
        honest="as_committed",
    ),
    Case(
        "branch_like_a_hash",
        "a branch is called like the short hash of another commit",
        None,
        "is commit .*, and a name of",
        "as_committed",
        stage=in_runbook(tests("branch_like_a_hash", "passed", "", FAILS)),
        files={"branch_like_a_hash/test_it.py": FAILS},
        play=named_like_a_hash,
        exit_code=2,
    ),
    lie(
        runs("linked_script", "invalid", "outside.py, outside the tree", "python", "tool.py"),
        "the commit holds the script as a link to a file outside of it",
        honest="own_module",
        play=linked_to("print('patched')\n"),
    ),
    lie(
        StageCase(
            pytest_stage("linked_tests", "linked/test_it.py"),
            "invalid",
            "test_it was .*outside.py, outside the tree",
            {},
        ),
        "the commit holds its tests as a link to a file outside of it",
        honest="own_module",
        play=linked_to(TWO),
    ),
    lie(
        runs("script_of_the_pod", "blocked", "/patched/bench.py is not in the commit", "python", "/patched/bench.py"),
        "the script that is run lies on the pod, not in the commit",
        honest="reads_only",
    ),
    lie(
        tests("patched_on_pod", "failed", "test_a failed", FAILS),
        "the tree on the pod was patched by hand, the result is to be the commit's",
        honest="as_committed",
        play=patched_on_pod,
    ),
    lie(
        runs(
            "other_nsa",
            "invalid",
            "module nsa was imported from .*elsewhere",
            "python",
            "sub/tool.py",
            env=ELSEWHERE,
            files={**NSA, "sub/tool.py": SHOWS_NSA},
        ),
        "a wrong `nsa` is imported from elsewhere on PYTHONPATH",
        honest="own_module",
        before=first("other_nsa", OTHER_NSA),
    ),
    lie(
        runs(
            "modules_hidden", "invalid", "ran with -S", "python", "-S", "tool.py", files={**NSA, "tool.py": SHOWS_NSA}
        ),
        "python -S hides where its modules come from",
        honest="own_module",
        before=first("modules_hidden", "pass"),
    ),
    lie(
        runs("modules_hidden_by_script", "invalid", "ran with -S", "bash", "-c", "python -S -c 'print(1)'"),
        "a script's python -S hides where its modules come from",
        honest="own_module",
    ),
    truth(
        runs("copied", "passed", "", "python", "-c", COPIED.format(""), files=CORE),
        "a copy of the tree's package, as it is, is used from $TMPDIR",
    ),
    lie(
        runs("copied_and_patched", "invalid", "module pkg was", "python", "-c", COPIED.format(PATCHES), files=CORE),
        "a copy of the tree's package is patched in $TMPDIR, and used",
        honest="copied",
    ),
    lie(
        runs(
            "packed_and_patched",
            "invalid",
            "module pkg was",
            "python",
            "-c",
            PACKED.replace("VALUE)", "'2')", 1),
            files=CORE,
        ),
        "the same in a zip",
        honest="packed_as_it_is",
    ),
    lie(
        runs("compiled_and_patched", "invalid", "module pkg was", "python", "-c", COMPILED_ONLY, files=CORE),
        "the same as bytecode without a source",
        honest="copied",
    ),
    lie(
        runs(
            "reshaped",
            "invalid",
            "module single_module was",
            "python",
            "-c",
            RESHAPED,
            files={"single_module.py": "VALUE = 1\n"},
        ),
        "the same of a module, as a package",
        honest="copied",
    ),
    lie(
        runs(
            "vendored_twice",
            "invalid",
            "module kept_twice was imported from vendor/site-packages/",
            "python",
            "-c",
            VENDOR_FIRST.format("kept_twice"),
            files=VENDORED,
        ),
        "a committed folder site-packages has another package of the name of the commit's",
        honest="vendored",
    ),
    lie(
        tests(
            "space_hidden",
            "invalid",
            "module spacious.core was imported from .*, and the commit has its own",
            "from spacious.core import VALUE\ndef test_a(): assert VALUE == 2\n",
            files=SPACE,
        ),
        "a package without __init__.py is hidden by an installed one of its name",
        honest="space_beside",
    ),
    lie(
        runs(
            "kept_in_lib_and_not_used",
            "invalid",
            "module kept was",
            "python",
            "sub/shows_kept.py",
            env=ELSEWHERE,
            files=KEPT,
        ),
        "the package under lib/ is not on the path, another one of its name is",
        honest="kept_in_lib",
        before=first("kept_in_lib_and_not_used", _module_elsewhere("kept")),
    ),
    lie(
        runs(
            "kept_deeper_and_not_used",
            "invalid",
            "module kept_deeper was",
            "python",
            "sub/shows_kept_deeper.py",
            env=ELSEWHERE,
            files={
                "bindings/python/kept_deeper/__init__.py": "",
                "sub/shows_kept_deeper.py": "import kept_deeper\nprint(1)\n",
            },
        ),
        "the same of a package under bindings/python/",
        honest="kept_in_lib",
        before=first("kept_deeper_and_not_used", _module_elsewhere("kept_deeper")),
    ),
    *(
        lie(
            runs(
                name,
                "invalid",
                "impl came from",
                "python",
                f"sub/{name}.py",
                files={f"sub/{name}.py": program.format("../elsewhere/impl.py")},
            ),
            pretends,
            honest="own_by_path",
            before=first(name, WRITES_IMPL),
        )
        for name, program, pretends in (
            ("by_path", BY_PATH, "a program loads a file that is not the commit's, by its path"),
            ("as_text", AS_TEXT, "a program reads such a file, and executes it"),
            ("as_program", AS_PROGRAM, "a program runs such a file in itself, and takes what it defines"),
        )
    ),
    lie(
        runs(
            "on_stdin",
            "invalid",
            "__main__ came from .*on_stdin.py",
            "bash",
            "-c",
            "python - < ../elsewhere/on_stdin.py",
        ),
        "a program that is not the commit's comes on stdin",
        honest="own_on_stdin",
        before=first("on_stdin", WRITES_PROGRAM),
    ),
    lie(
        runs(
            "helped_by_another",
            "invalid",
            "helper_of_another came from",
            "python",
            "sub/helped.py",
            env=ELSEWHERE,
            files=HELPED,
        ),
        "a module comes from a folder that is neither the commit's nor the environment's",
        honest="helper_allowed",
        before=first("helped_by_another", _module_elsewhere("helper_of_another")),
    ),
    lie(
        runs(
            "helped_by_another_site",
            "invalid",
            "helper_of_a_site came from",
            "python",
            "sub/helped_by_site.py",
            env={"PYTHONPATH": "../elsewhere/site-packages"},
            files={"sub/helped_by_site.py": "import helper_of_a_site\nprint(helper_of_a_site.VALUE)\n"},
        ),
        "the same of a folder that is called as those of environments are",
        honest="helper_allowed",
        before=first("helped_by_another_site", _module_elsewhere("site-packages/helper_of_a_site")),
    ),
    lie(
        runs(
            "out_of_sight",
            "invalid",
            "out of the agent's sight",
            "sh",
            "-c",
            "printf '%d passed in 0.0%ds\\n' 3 0",
        ),
        "the closing line of a pytest that nobody saw, as under env -i",
        honest="shows_an_old_log",
    ),
    lie(
        runs("compiled_before", "failed", "exit code 1", "python", "build.py", files=EXTENDED),
        "a compiled extension of another commit stands in for one that does not compile",
        honest="compiled_again",
        play=two_commits,
    ),
]

CASES: list[Case] = [*HONEST, *LIES]
