"""A thin environment over others: of a system's Python, of a virtual one, of one like conda's; and its scripts."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from orchestrator.agent.env.interpreter import Interpreter, inspect
from orchestrator.agent.env.thin_venv import ThinVenv

SAYS = "import json, sys, library; print(json.dumps([sys.prefix, library.__file__]))"


def over(python: Path | str, root: Path, *first: str) -> ThinVenv:
    """A thin environment at `root` over that of `python`."""
    thin = ThinVenv(root, inspect({"python": str(python), "kind": "system"}, []))
    thin.make(first)
    return thin


def output(*argv: object, **env: str) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        env={"PATH": "/usr/bin:/bin", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.strip()


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """A virtual environment with a library, a data folder and scripts."""
    root = tmp_path / "below"
    venv.create(root, with_pip=False, symlinks=True)
    (site,) = root.glob("lib/python*/site-packages")
    (site / "library.py").write_text("")
    (site / "more.pth").write_text("import sys; sys.more = 1\n")
    (root / "lib" / "libdata.so").write_text("")
    (root / "share").mkdir()
    (root / "share" / "data").write_text("data\n")
    scripts = {
        "plain": f"#!{root}/bin/python\n",
        "versioned": f"#!{root}/bin/python{sys.version_info[0]}\n",
        "optimised": f"#!{root}/bin/python -O\n",
        "launched": f"#!/bin/sh\n'''exec' '{root}/bin/python' \"$0\" \"$@\"\n' '''\n",
    }
    for name, head in scripts.items():
        (root / "bin" / name).write_text(
            head + "import sys, library; print(sys.prefix, sys.flags.optimize, *sys.argv[1:])\n"
        )
        (root / "bin" / name).chmod(0o755)
    (root / "bin" / "tool.sh").write_text("#!/bin/sh\necho tool\n")
    (root / "bin" / "binary").write_bytes(b"\x7fELF")
    return root


@pytest.fixture(params=["thin", "a folder with blanks/thin", "d" * 120 + "/thin"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Also where first lines cannot hold the path."""
    return tmp_path / str(request.param)


@pytest.mark.process
def test_it_sees_what_is_below_and_is_its_own(below: Path, root: Path) -> None:
    thin = over(below / "bin" / "python", root)
    for name in ("python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}"):
        assert output(thin.bin / name, "-c", SAYS) == f'["{root}", "{next(below.glob("lib/*/*/library.py"))}"]'
    assert output(thin.python, "-I", "-c", "import sys; print(sys.more)") == "1"
    assert output(thin.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").startswith(str(root))
    assert (root / "share" / "data").read_text() == "data\n"
    assert (root / "lib" / "libdata.so").exists()


@pytest.mark.process
@pytest.mark.parametrize(("script", "optimize"), [("plain", 0), ("versioned", 0), ("optimised", 1), ("launched", 0)])
def test_its_scripts_run_under_its_own_python(below: Path, root: Path, script: str, optimize: int) -> None:
    thin = over(below / "bin" / "python", root)
    assert output(thin.bin / script, "a", "b c") == f"{root} {optimize} a b c"
    assert thin.instead_of(str(below / "bin" / script)) == str(thin.bin / script)


@pytest.mark.process
def test_its_scripts_are_known_where_the_way_to_the_environment_is_a_link(below: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(below)
    thin = over(tmp_path / "linked" / "bin" / "python", tmp_path / "thin")
    assert output(thin.bin / "plain") == f"{tmp_path / 'thin'} 0"


@pytest.mark.process
def test_programs_of_others_stay_where_they_are(below: Path, root: Path) -> None:
    thin = over(below / "bin" / "python", root)
    for name in ("tool.sh", "binary", "absent"):
        assert thin.instead_of(str(below / "bin" / name)) == str(below / "bin" / name)
    assert thin.instead_of("plain") == "plain"
    assert thin.instead_of("/usr/bin/python3") == "/usr/bin/python3"


@pytest.mark.process
def test_lines_come_first_and_leave_no_trace_below(below: Path, root: Path) -> None:
    thin = over(
        below / "bin" / "python", root, "import sys; sys.first = getattr(sys, 'first', not hasattr(sys, 'more'))"
    )
    for flags in ((), ("-I",), ("-E",), ("-s",)):
        assert output(thin.python, *flags, "-c", "import sys; print(sys.first)", PYTHONPATH="/nonexistent") == "True"
    assert output(below / "bin" / "python", "-c", "import sys; print(hasattr(sys, 'first'))") == "False"


@pytest.mark.process
def test_what_is_installed_in_it_goes_when_it_is_made_anew(below: Path, root: Path) -> None:
    thin = over(below / "bin" / "python", root)
    (packages,) = root.glob("lib/python*/site-packages")
    (packages / "installed.py").write_text("")
    output(thin.python, "-c", "import installed")
    thin.make([])
    assert not (packages / "installed.py").exists()
    assert not list(below.glob("lib/python*/site-packages/installed.py"))


@pytest.mark.process
def test_an_environment_made_by_its_python_stands_on_the_same_base(below: Path, root: Path) -> None:
    thin = over(below / "bin" / "python", root)
    output(thin.python, "-m", "venv", "--without-pip", root.parent / "inner")
    base = output(root.parent / "inner" / "bin" / "python", "-c", "import sys; print(sys.base_prefix)")
    assert base == output(below / "bin" / "python", "-c", "import sys; print(sys.base_prefix)")


def _system_pythons() -> list[str]:
    """Pythons of the machine that are no virtual environments: a distribution's, and one in a prefix of its own."""
    base = getattr(sys, "_base_executable", sys.executable)
    return list(dict.fromkeys(path for path in ("/usr/bin/python3", os.path.realpath(base)) if os.path.exists(path)))


@pytest.mark.process
@pytest.mark.parametrize("python", _system_pythons())
def test_over_a_python_that_is_no_virtual_environment(python: str, root: Path) -> None:
    thin = over(python, root)
    sites = "import sys; print([p for p in sys.path if p.endswith('-packages')])"
    own, *shared = eval(output(thin.python, "-c", sites))
    assert own.startswith(str(root))
    assert shared == eval(output(python, "-s", "-c", sites))
    assert output(thin.python, "-c", "import sys; print(sys.prefix)") == str(root)


def test_library_folders_called_otherwise(tmp_path: Path) -> None:
    """Fedora keeps compiled packages in lib64; of both there is one in the thin environment."""
    prefix = tmp_path / "below"
    for folder in ("bin", "lib/python3.11/site-packages", "include"):
        (prefix / folder).mkdir(parents=True)
    (prefix / "lib64").symlink_to("lib")
    (prefix / "bin" / "python").symlink_to(sys.executable)
    sites = (str(prefix / "lib/python3.11/site-packages"),)
    interpreter = Interpreter(
        f"{prefix}/bin/python", "managed", None, "3.11.7", str(prefix), sys.executable, True,
        "lib/python3.11/site-packages", sites, frozenset(),
    )  # fmt: skip
    thin = ThinVenv(tmp_path / "thin", interpreter)
    thin.make([])
    assert (tmp_path / "thin" / "include").is_symlink()
    assert not os.path.lexists(tmp_path / "thin" / "lib64")
    assert sites[0] in (tmp_path / "thin" / "lib/python3.11/site-packages/nsa_pod.pth").read_text()


@pytest.mark.process
def test_one_that_nobody_has_touched_stays(below: Path, root: Path) -> None:
    thin = over(below / "bin" / "python", root)
    made = (root / "pyvenv.cfg").stat().st_ino, (root / "bin").stat().st_ino
    thin.make([])
    assert ((root / "pyvenv.cfg").stat().st_ino, (root / "bin").stat().st_ino) == made
    (package,) = root.glob("lib/python*/site-packages")
    (package / "namespace").mkdir()
    thin.make([])
    assert not (package / "namespace").exists()


@pytest.mark.process
def test_programs_that_are_no_scripts_stand_beside_its_python_too(below: Path, tmp_path: Path) -> None:
    program = below / "bin" / "ninja"
    program.write_text("#!/bin/sh\necho built\n")
    program.chmod(0o755)
    (below / "bin" / "notes").write_text("no program\n")
    once = over(below / "bin" / "python", tmp_path / "once")
    twice = over(once.python, tmp_path / "twice")
    for thin in (once, twice):
        assert (
            output(thin.python, "-c", "import subprocess, sys; subprocess.run([sys.prefix + '/bin/ninja'])") == "built"
        )
        assert not (thin.bin / "notes").exists()
