"""What is found in a repository, and the runbook that is written for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import starter
from orchestrator.config.runbook import Runbook
from orchestrator.config.survey import survey
from orchestrator.config.yamlfile import loads
from tests.support.files import write_files

SRC_LAYOUT = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools", "pybind11"]
[project]
name = "fast-thing"
dependencies = ["numpy>=1.26", "torch>=2.3", 'tomli; python_version < "3.11"', 'pywin32; sys_platform == "win32"']
[project.optional-dependencies]
test = ["pytest>=8", "hypothesis", "fast-thing[more]", "thing @ git+https://example.org/thing"]
more = ["einops"]
[tool.pytest.ini_options]
testpaths = ["tests"]
""",
    "setup.py": "import setuptools as s\ns.setup(ext_modules=[s.Extension('fast._c', ['src/fast/c.c'])])\n",
    "src/fast/__init__.py": "import torch\n",
    "src/fast/c.c": "",
    "src/fast/kernels.py": "import triton\n",
    "tests/test_cpu.py": """
import pytest, yaml, torch
from fast import x
@pytest.mark.skip(reason="needs a network (slow)")
def test_net(): ...
""",
    "tests/test_gpu.py": "import torch\ndef test_it(): assert torch.ones(1, device='cuda')\n",
    "tests/.hidden/test_no.py": "",
    "benchmarks/bench_attn.py": "if __name__ == '__main__': print('cuda')\n",
    "benchmarks/helper.py": "",
}


def written(tmp_path: Path, files: dict[str, str]) -> tuple[str, Runbook]:
    write_files(tmp_path, files)
    text = starter.runbook(survey(tmp_path))
    return text, loads(text, "validate.yaml", Runbook)


def test_a_project_with_an_extension_tests_for_both_devices_and_a_bench(tmp_path: Path) -> None:
    text, runbook = written(tmp_path, SRC_LAYOUT)
    environment = runbook.environment
    assert environment.requires == ["torch", "triton"]
    assert set(environment.extra) - {"tomli"} == {"pytest>=8", "numpy>=1.26", "hypothesis", "einops", "pyyaml"}
    assert "thing @ git+https://example.org/thing" in text
    tests, gpu, bench = runbook.stages
    assert tests.run and tests.run[-1] == "tests" and tests.expect["tests"]["allow_skips"] == ["(?i)cuda|gpu|triton"]
    assert gpu.run and gpu.run[-1] == "tests/test_gpu.py" and gpu.when == ["cuda"]
    assert gpu.expect["device"] == "cuda"
    assert (bench.name, bench.required, bench.exclusive, bench.when) == ("bench_attn", False, "gpu", ["cuda"])
    assert r"needs a network \\(slow\\)" in text
    assert text.startswith("# yaml-language-server: $schema=.schema/runbook.json\n")
    assert "src layout" in survey(tmp_path)[0].told() and "compiled extension" in survey(tmp_path)[0].told()


@pytest.mark.parametrize(
    ("files", "run", "cwd"),
    [
        ({"test_x.py": ""}, ["test_x.py"], "."),
        (
            {"setup.cfg": "[tool:pytest]\ntestpaths = u\n", "u/test_x.py": "", "tests/test_y.py": ""},
            ["u"],
            ".",
        ),
        ({"pkg/__init__.py": "", "pkg/tests/test_x.py": "", "scripts/test_y.py": ""}, ["pkg/tests"], "."),
        ({"python/setup.py": "", "python/tests/test_x.py": "", "README.md": ""}, ["tests"], "python"),
        ({"src/p/__init__.py": "", "src/p/_tests/test_x.py": "", "src/p/_y_test.py": ""}, ["src/p/_tests"], "."),
        ({"pyproject.toml": "not = [toml", "tests/test_x.py": "def ("}, ["tests"], "."),
    ],
)
def test_where_the_tests_are(tmp_path: Path, files: dict[str, str], run: list[str], cwd: str) -> None:
    _, runbook = written(tmp_path, files)
    (stage,) = runbook.stages
    assert stage.run and stage.run[4:] == run
    assert stage.cwd == cwd


def test_several_projects_have_stages_of_their_own(tmp_path: Path) -> None:
    project = '[project]\nname = "a-{0}"\ndependencies = ["a-base", "need-{0}"]\n[tool.pytest.ini_options]\n{1}'
    _, runbook = written(
        tmp_path,
        {
            "pyproject.toml": "[tool.ruff]\nline-length = 120\n",
            "libs/one/pyproject.toml": project.format("one", "testpaths = ['t']"),
            "libs/one/a/one/x.py": "",
            "libs/one/t/test_x.py": "import a.base, torch",
            "libs/base/pyproject.toml": project.format("base", ""),
            "libs/base/tests/test_x.py": "def test_it(): 'cuda'",
            "libs/base/bench/bench_x.py": "if __name__ == '__main__': pass",
            "examples/one/pyproject.toml": project.format("example", ""),
        },
    )
    assert [entry.path for entry in runbook.install] == ["libs/base", "libs/one"]
    assert runbook.environment.requires == ["torch"]
    assert set(runbook.environment.extra) == {"pytest", "need-one", "need-base"}
    told = [(stage.name, stage.cwd, stage.run and stage.run[-1]) for stage in runbook.stages]
    assert told == [
        ("tests_a-base", "libs/base", "tests"),
        ("bench_x_a-base", ".", "libs/base/bench/bench_x.py"),
        ("tests_a-one", "libs/one", "t"),
    ]


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": "[tool.black]\nline-length = 120\n"},
        {"setup.cfg": "[flake8]\nmax-line-length = 120\n"},
    ],
)
def test_settings_of_tools_are_no_project(tmp_path: Path, files: dict[str, str]) -> None:
    _, runbook = written(tmp_path, {**files, "pkg/__init__.py": "", "data/x.py": "", "tests/test_x.py": ""})
    assert not runbook.install
    assert runbook.env == {"PYTHONPATH": "{tree}"}


@pytest.mark.parametrize(
    ("files", "run"),
    [
        (["fast/__init__.py", "tests/test_x.py"], ["pytest", "-q", "tests"]),
        (["fast/__init__.py", "tests/a/conftest.py", "tests/a/test_x.py", "tests/b/conftest.py", "tests/b/test_y.py"],
         ["pytest", "-q", "tests/a", "tests/b"]),
        (["fast/__init__.py", "tests/__init__.py", "tests/test_x.py"],
         ["pytest", "--import-mode=append", "-q", "tests"]),
        (["fast/__init__.py", "conftest.py", "tests/test_x.py"], ["pytest", "--import-mode=append", "-q", "tests"]),
        (["fast/__init__.py", "conftest.py", "tests/conftest.py", "tests/test_x.py"],
         ["pytest", "--import-mode=importlib", "-q", "tests"]),
        (["lib/fast/__init__.py", "tests/test_x.py"], ["python", "-m", "pytest", "-q", "tests"]),
    ],
)  # fmt: skip
def test_a_package_at_the_top_does_not_hide_its_compiled_modules(
    tmp_path: Path, files: list[str], run: list[str]
) -> None:
    setup = "import setuptools as s\ns.setup(ext_modules=[s.Extension('fast._c', ['fast/c.c'])])\n"
    _, runbook = written(tmp_path, {"setup.py": setup, "fast/c.c": "", **dict.fromkeys(files, "")})
    assert runbook.stages[0].run == run


def test_an_import_mode_of_the_projects_own_is_left_alone(tmp_path: Path) -> None:
    setup = "import setuptools as s\ns.setup(ext_modules=[s.Extension('fast._c', ['fast/c.c'])])\n"
    files = dict.fromkeys(("fast/c.c", "fast/__init__.py", "tests/__init__.py", "tests/test_x.py"), "")
    ini = "[pytest]\naddopts = --import-mode=importlib\n"
    _, runbook = written(tmp_path, {"setup.py": setup, "pytest.ini": ini, **files})
    assert runbook.stages[0].run == ["pytest", "-q", "tests"]


def test_tests_inside_a_compiled_package_get_it_built_in_the_tree(tmp_path: Path) -> None:
    files = {
        "setup.py": "import setuptools as s\ns.setup(ext_modules=[s.Extension('fast._c', ['fast/c.c'])])\n",
        "pyproject.toml": '[build-system]\nrequires = ["setuptools>=61", "cython"]\n',
        **dict.fromkeys(("fast/__init__.py", "fast/c.c", "fast/tests/test_x.py"), ""),
    }
    _, runbook = written(tmp_path, files)
    build, tests = runbook.stages
    assert [each.path for each in runbook.install] == ["."]  # for its metadata: versions, entry points
    assert set(runbook.environment.extra) == {"pytest", "setuptools>=61", "cython"}
    assert build.run == ["python", "setup.py", "build_ext", "--inplace"] and build.builds == ["fast/**/*.so"]
    assert tests.run == ["python", "-m", "pytest", "-q", "fast/tests"] and tests.needs == ["build"]


@pytest.mark.parametrize(
    ("imports", "files", "run"),
    [
        ("from ._version import version", ["tests/test_x.py"], ["pytest", "-q", "tests"]),
        ("from fast._version import version", ["fast/tests/test_x.py"], ["pytest", "-q", "--pyargs", "fast.tests"]),
        ("from .about import version", ["fast/tests/test_x.py"], ["pytest", "-q", "--pyargs", "fast.tests"]),
        ("from ._version import version", ["fast/tests/test_x.py", "fast/_version.py"], []),
        ("from .sub import version\nfrom . import other", ["fast/tests/test_x.py", "fast/sub/x.py"], []),
        ("try:\n    from ._version import version\nexcept ImportError: version = ''", ["fast/tests/test_x.py"], []),
    ],
)
def test_a_package_that_its_build_completes_is_tested_as_it_was_installed(
    tmp_path: Path, imports: str, files: list[str], run: list[str]
) -> None:
    package = {"pyproject.toml": "[project]\nname = 'fast'\n", "fast/__init__.py": imports}
    about = {"fast/about.py": "from ._version import version\n"}
    _, runbook = written(tmp_path, {**package, **about, **dict.fromkeys(files, "")})
    assert runbook.stages[0].run == (run or ["python", "-m", "pytest", "-q", "fast/tests"])


def test_modules_of_the_repository_are_no_packages_of_an_index(tmp_path: Path) -> None:
    tests = "import here, beside, inner, plugins, numpy, xdist, _native, compiled\nfrom tools_of_tests import x\n"
    tests += "import test_deep, cutlass, requests\n"
    _, runbook = written(
        tmp_path,
        {
            "pyproject.toml": '[project]\nname = "pkg"\n[tool.pytest.ini_options]\ntestpaths = ["tests"]\n',
            "requirements.txt": "nvidia-cutlass-dsl\ntypes-requests\n",
            "setup.py": "setup(ext_modules=[CUDAExtension(name='compiled', sources=[]), Extension('_native.x', [])])",
            "src/here/__init__.py": "",
            "plugins/a.py": "",
            "tests/deep/inner/test_deep.py": "",
            "scripts/beside.py": "",
            "tests/test_a.py": tests,
            "tests/deep/inner/__init__.py": "",
            "tests/far/test_b.py": "",
            "tests/far/__init__.py": "import scipy",
            "tests/unused/__init__.py": "import optuna",
            "tests/tools_of_tests/__init__.py": "",
            "tests/pandas/__init__.py": "",
            "examples/test_it.py": "import optuna",
        },
    )
    needs = {"numpy", "scipy", "pytest-xdist", "requests", "nvidia-cutlass-dsl", "types-requests"}
    assert set(runbook.environment.extra) == {"pytest", *needs}


def test_modules_beside_a_program_are_no_packages_of_an_index(tmp_path: Path) -> None:
    """Its folder is the first on its path, also where that is a package."""
    bench = "import time\nfrom utils import run\nimport scipy\nif __name__ == '__main__': run()\n"
    files = {"scripts/__init__.py": "", "scripts/utils.py": "", "scripts/bench_it.py": bench}
    _, runbook = written(
        tmp_path,
        {
            "bench/__init__.py": "",
            "tests/test_x.py": "import numpy",
            **{f"bench/{name}": text for name, text in files.items()},
        },
    )
    assert set(runbook.environment.extra) == {"pytest", "numpy", "scipy"}


def test_where_nothing_can_be_run_nothing_can_pass(tmp_path: Path) -> None:
    text, runbook = written(tmp_path, {"Puzzles.ipynb": "{}"})
    assert [stage.run for stage in runbook.stages] == [["python", "-m", "pytest", "-q"]]
    assert "blocked until there is a test" in text


def test_modules_where_pytest_is_told_to_look_are_no_packages_of_an_index(tmp_path: Path) -> None:
    files = {".hidden/helper.py": "", ".hidden/more/__init__.py": "", "tests/test_x.py": "import helper, more, numpy"}
    _, runbook = written(tmp_path, {"pytest.ini": "[pytest]\npythonpath = .hidden\n", **files})
    assert set(runbook.environment.extra) == {"pytest", "numpy"}


@pytest.mark.parametrize(
    ("code", "tests", "stages"),
    [
        ("import torch", "def test_it(): assert 'cuda'", ["tests", "gpu"]),
        ("import torch", "print('cuda')", ["tests"]),
        ("import re", "def test_it(): assert re.match('3.0+cuda', '3')", ["tests"]),
        ("", "import pycuda\ndef test_it(): assert 'cuda'", ["tests", "gpu"]),
        ("", "import pytest\ntorch = pytest.importorskip('torch')\ndef test_it(): assert 'cuda'", ["tests", "gpu"]),
    ],
)
def test_a_stage_for_cuda_where_tests_can_use_it(tmp_path: Path, code: str, tests: str, stages: list[str]) -> None:
    _, runbook = written(tmp_path, {"pkg/__init__.py": code, "tests/test_x.py": tests})
    assert [stage.name for stage in runbook.stages] == stages


def test_a_sibling_without_tests_that_is_needed_is_installed(tmp_path: Path) -> None:
    project = '[project]\nname = "{0}"\ndependencies = [{1}]\n'
    _, runbook = written(
        tmp_path,
        {
            "app/pyproject.toml": project.format("acme-app", '"acme_core"'),
            "app/tests/test_x.py": "",
            "core/pyproject.toml": project.format("acme-core", ""),
            "docs/setup.py": "",
        },
    )
    assert [entry.path for entry in runbook.install] == ["app", "core"]
    assert runbook.environment.extra == ["pytest"]


@pytest.mark.parametrize(
    ("top", "installed"),
    [
        ("", ["apps/train", "libs/core", "libs/io"]),
        ("[build-system]\nrequires = ['hatchling']\n", [".", "apps/train", "libs/core", "libs/io"]),
        ("[tool.uv]\npackage = false\n", ["apps/train", "libs/core", "libs/io"]),
    ],
)
def test_members_of_a_workspace_are_installed_from_it(tmp_path: Path, top: str, installed: list[str]) -> None:
    project = '[project]\nname = "{0}"\ndependencies = [{1}]\n'
    workspace = project.format("acme", '"acme-io", "rich"') + "[dependency-groups]\ndev = ['pytest-timeout', 'ruff']\n"
    members = "[tool.uv.workspace]\nmembers = ['apps/*', 'libs/*']\nexclude = ['libs/old']\n"
    text, runbook = written(
        tmp_path,
        {
            "pyproject.toml": workspace + top + members,
            "apps/train/pyproject.toml": project.format("acme-train", '"acme_core", "omegaconf"'),
            "apps/train/tests/test_x.py": "import acme_core\n",
            "libs/core/pyproject.toml": project.format("acme-core", '"numpy"'),
            "libs/core/src/acme_core/__init__.py": "",
            "libs/io/pyproject.toml": project.format("acme-io", ""),
            "libs/old/pyproject.toml": project.format("acme-old", ""),
            "examples/one/pyproject.toml": project.format("one", '"acme"'),
        },
    )
    assert [entry.path for entry in runbook.install] == installed
    assert {*runbook.environment.extra} == {"pytest", "pytest-timeout", "rich", "numpy", "omegaconf"}
    assert "left out, as no test names them: ruff" in text


def test_an_example_in_a_folder_of_a_project_is_not_installed(tmp_path: Path) -> None:
    files = {name: f'[project]\nname = "{name[:1]}"\n' for name in ("pyproject.toml", "examples/b/pyproject.toml")}
    _, runbook = written(tmp_path, {**files, "tests/test_x.py": "", "examples/b/test_b.py": ""})
    assert [entry.path for entry in runbook.install] == ["."]


def test_tests_beside_the_projects_have_a_stage(tmp_path: Path) -> None:
    files = {"python/pyproject.toml": '[project]\nname = "a"\n', "tests/test_x.py": "", "python/a/__init__.py": ""}
    _, runbook = written(tmp_path, files)
    assert [stage.run[-1] for stage in runbook.stages if stage.run and "pytest" in stage.run] == ["tests"]
    assert [entry.path for entry in runbook.install] == ["python"]


def test_projects_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    files = {f"{side}/python/{name}": "" for side in ("client", "server") for name in ("setup.py", "test_x.py")}
    _, runbook = written(tmp_path, files)
    assert [stage.name for stage in runbook.stages] == ["tests_client_python", "tests_server_python"]
    files = {"a/x/pyproject.toml": "[project]\nname = 'x'\n", "a/x/tests/test_x.py": "", "b/x/test_y.py": ""}
    again = {"a/b/pyproject.toml": "[project]\nname = 'x'\n", "a/b/tests/test_x.py": ""}
    _, runbook = written(tmp_path / "rest" / "x", {**files, **again})
    assert [stage.name for stage in runbook.stages] == ["tests_a_b", "tests_a_x", "tests_rest"]


@pytest.mark.parametrize(
    ("files", "words", "installs"),
    [
        ({"2024/setup.py": "", "2024/test_x.py": ""}, 'cwd: "2024"', ["2024"]),
        ({"on/setup.py": "", "on/test_x.py": ""}, 'cwd: "on"', ["on"]),
        ({"pyproject.toml": '[project]\nname = "a"\ndependencies = ["x\\nevil: 1"]\n'}, "index: x evil: 1", ["."]),
        ({"pyproject.toml": '[tool.pytest.ini_options]\ntestpaths = ["./"]\n'}, "pytest", []),
        ({"pyproject.toml": "[build-system]\nrequires = 5\n", "setup.py": ""}, "pytest", ["."]),
        ({"pyproject.toml": '[tool.poetry]\nname = "a"\npackage-mode = false\n'}, "pytest", []),
    ],
)
def test_odd_words_make_a_runbook_that_is_one(
    tmp_path: Path, files: dict[str, str], words: str, installs: list[str]
) -> None:
    text, runbook = written(tmp_path, {"test_y.py": "", **files} if "pyproject.toml" in files else files)
    assert words in text and [entry.path for entry in runbook.install] == installs


def test_what_developers_get_and_no_test_names_is_said(tmp_path: Path) -> None:
    groups = '[dependency-groups]\ndev = ["pytest-cov", "PyYAML>=6", "mkdocs"]\n'
    text, runbook = written(tmp_path, {"pyproject.toml": groups, "tests/test_x.py": "def test(): import yaml"})
    assert set(runbook.environment.extra) == {"pytest", "pytest-cov", "PyYAML>=6"}
    assert "# left out, as no test names them: mkdocs\n" in text


def test_extras_of_what_is_needed_anyway_are_kept(tmp_path: Path) -> None:
    project = '[project]\nname = "svc"\ndependencies = ["uvicorn>=0.30", "httpx"]\n'
    groups = '[dependency-groups]\ndev = ["uvicorn[standard]", "httpx[http2]>=1", "mkdocs"]\n'
    _, runbook = written(tmp_path, {"pyproject.toml": project + groups, "tests/test_x.py": "def test(): assert 1"})
    assert set(runbook.environment.extra) == {"pytest", "uvicorn[standard]>=0.30", "httpx[http2]"}


def test_what_the_tests_helpers_and_programs_import_is_taken(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[dependency-groups]\ndev = ["objgraph", "psutil", "mkdocs"]\n',
        "tests/test_x.py": "",
        "tests/isolated/leak.py": "import objgraph\nimport other",
        "tests/helpers.py": "import psutil",
        "docs/conf.py": "import mkdocs",
    }
    text, runbook = written(tmp_path, files)
    assert set(runbook.environment.extra) == {"pytest", "objgraph", "psutil"}
    assert "# left out, as no test names them: mkdocs\n" in text


@pytest.mark.parametrize(
    "groups",
    [
        '[tool.uv]\ndev-dependencies = ["pytest-mock>=3", "mkdocs"]\n',
        '[tool.rye]\ndev-dependencies = ["pytest-mock>=3", "mkdocs"]\n',
        '[tool.pdm.dev-dependencies]\ntest = ["pytest-mock>=3"]\ndoc = ["mkdocs"]\n',
        '[tool.hatch.envs]\ndefault.dependencies = ["pytest-mock>=3"]\ndocs.dependencies = ["mkdocs"]\n',
        '[tool.hatch.envs.hatch-test]\nextra-dependencies = ["pytest-mock>=3"]\n',
        '[tool.hatch.envs.test]\nfeatures = ["t"]\n[project.optional-dependencies]\nt = ["pytest-mock>=3"]\n',
        '[dependency-groups]\ndev = ["pytest-mock>=3"]\n[tool.uv]\ndefault-groups = ["dev"]\n',
    ],
)
def test_what_tools_of_projects_install_for_tests(tmp_path: Path, groups: str) -> None:
    _, runbook = written(tmp_path, {"pyproject.toml": groups, "tests/test_x.py": ""})
    assert runbook.environment.extra == ["pytest", "pytest-mock>=3"]


@pytest.mark.parametrize(
    ("more", "installs"),
    [
        ({}, []),
        ({"setup.py": "import setuptools\nsetuptools.setup()\n"}, ["."]),
        ({"pyproject.toml": "[tool.uv]\npackage = true\n[project]\nname = 'svc'\n"}, ["."]),
    ],
)
def test_what_uv_does_not_build_is_no_project(tmp_path: Path, more: dict[str, str], installs: list[str]) -> None:
    pyproject = "[project]\nname = 'svc'\n[tool.uv]\ndev-dependencies = ['pytest']\n"
    files = {"pyproject.toml": pyproject, "app/__init__.py": "", "tests/test_x.py": "import app\n", **more}
    text, runbook = written(tmp_path, files)
    assert [entry.path for entry in runbook.install] == installs
    assert ('PYTHONPATH: "{tree}"' in text) is (not installs)


def test_plugins_whose_marks_and_fixtures_the_tests_use(tmp_path: Path) -> None:
    test = "import pytest\n@pytest.mark.{}\ndef test_it({}): ..."
    files = {
        "tests/test_a.py": test.format("asyncio", "mocker, benchmark"),
        "tests/test_b.py": test.format("timeout", "httpserver, httpbin_secure"),
        "tests/conftest.py": "import pytest\n@pytest.fixture\ndef httpserver(): ...",
        "pytest.ini": "[pytest]\nmarkers =\n  timeout: own\n",
        "requirements-test.txt": "pytest-codspeed",
    }
    text, _ = written(tmp_path, files)
    assert "  # guessed by what tests and benches import and use: pytest-asyncio; pytest-httpbin; pytest-mock\n" in text


@pytest.mark.parametrize("names", ["'inp,benchmark'", "('inp', 'benchmark')", "argnames=['inp', 'benchmark']"])
def test_what_a_test_is_parametrized_with_is_no_plugins_fixture(tmp_path: Path, names: str) -> None:
    test = f"import pytest\n@pytest.mark.parametrize({names}, [(1, 1)])\ndef test_it(inp, benchmark): ..."
    text, _ = written(tmp_path, {"tests/test_a.py": test})
    assert "guessed" not in text
    text, _ = written(tmp_path / "twin", {"tests/test_a.py": test, "tests/test_b.py": "def test_b(benchmark): ..."})
    assert "  # guessed by what tests and benches import and use: pytest-benchmark\n" in text


def test_plugins_of_benches_that_pytest_runs(tmp_path: Path) -> None:
    bench = "import pytest, time\npytestmark = pytest.mark.benchmark()\ndef test_it(): ..."
    text, _ = written(tmp_path, {"tests/test_a.py": "def test_it(): ...", "bench/test_speed.py": bench})
    assert "run: [python, -m, pytest, -q, bench/test_speed.py]" in text
    assert "  # guessed by what tests and benches import and use: pytest-benchmark\n" in text


def test_a_build_backend_of_the_repository_may_compile(tmp_path: Path) -> None:
    build = '[build-system]\nrequires = ["setuptools"]\nbackend-path = ["packaging"]\nbuild-backend = "own.hooks"\n'
    files = {"pyproject.toml": build, "fast/__init__.py": "", "fast/c.pyx": "", "tests/test_x.py": ""}
    _, runbook = written(tmp_path, files)
    assert runbook.stages[0].run == ["pytest", "-q", "tests"]


def test_modules_below_a_folder_of_tests_are_no_packages(tmp_path: Path) -> None:
    tests = {
        "tests/conftest.py": "",
        "tests/tensor/helpers.py": "",
        "tests/tensor/linear/test_linear.py": "from tensor.helpers import check\nimport tensor.helpers, cuda.bindings",
        "tests/jax/test_jax.py": "from jax import numpy",
    }
    text, runbook = written(tmp_path, tests)
    assert set(runbook.environment.extra) == {"pytest", "cuda-python", "jax"}
    assert "  # guessed by what tests and benches import and use: cuda-python; jax\n" in text


def test_what_setup_py_says_in_so_many_words(tmp_path: Path) -> None:
    setup = """
from setuptools import Extension, setup
needs = ["numpy", "einops[torch]>=0.8", "z3-solver"]
setup(name="ring-attention", ext_modules=[Extension(name="other", sources=[])], install_requires=needs,
      extras_require={"test": ["hypothesis", "ring-attention[fast]"], "fast": ["numba"], "docs": ["sphinx"]},
      version=read())
"""
    files = {
        "setup.py": setup,
        "requirements.txt": "ring-attention\nclick",
        "tests/test_x.py": "import z3, ring_attention",
    }
    _, runbook = written(tmp_path, {**files, "ring_attention/__init__.py": ""})
    told = {"pytest", "numpy", "einops[torch]>=0.8", "z3-solver", "hypothesis", "numba", "click"}
    assert set(runbook.environment.extra) == told


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"pyproject.toml": "[project]\nname = 'x'\n", "x/__init__.py": ""}, "x"),
        ({"pyproject.toml": "[project]\nname = 'x'\n", "x.py": ""}, "x"),
        ({"setup.py": "from setuptools import setup\nsetup(name='x')\n", "x/__init__.py": ""}, "x"),
        ({"pyproject.toml": "[project]\nname = 'x'\n", "src/x/__init__.py": ""}, ""),
        ({"pyproject.toml": "[project]\nname = 'x'\n[tool.setuptools]\npackages = ['x']\n", "x/__init__.py": ""}, ""),
        (
            {
                "pyproject.toml": "[project]\nname = 'x'\n[build-system]\nbuild-backend = 'hatchling.build'\n",
                "x.py": "",
            },
            "",
        ),
        ({"setup.py": "import setuptools\nsetuptools.setup(packages=setuptools.find_packages())\n", "x.py": ""}, ""),
        ({"setup.cfg": "[metadata]\nname = x\n[options]\npackages = find:\n", "setup.py": "", "x/__init__.py": ""}, ""),
        (
            {
                "pyproject.toml": "[project]\nname = 'x.y'\n",
                "conftest.py": "",
                "x/y/__init__.py": "",
                "tests/z/__init__.py": "",
            },
            "x.y",
        ),
        ({"pyproject.toml": "[project]\nname = 'x'\n", "conftest.py": "", "lib.c": ""}, ""),
        ({"x/__init__.py": ""}, ""),
    ],
)
def test_what_setuptools_has_to_find_by_itself(tmp_path: Path, files: dict[str, str], found: str) -> None:
    write_files(tmp_path, files)
    assert [project.discovered for project in survey(tmp_path)] == [found]


def test_a_file_of_tests_beside_the_metadata(tmp_path: Path) -> None:
    _, runbook = written(tmp_path, {"setup.py": "", "x/__init__.py": "", "x/test.py": "def test(): ...", "test.py": ""})
    assert runbook.stages[0].name == "import"
    _, runbook = written(tmp_path, {"test.py": "import unittest\nclass T(unittest.TestCase):\n  def test_a(self): ..."})
    assert runbook.stages[0].run == ["python", "-m", "pytest", "-q", "test.py"]


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"pkg/__init__.py": ""}, "import pkg"),
        ({"train.py": "", "scripts/plot.py": ""}, "compileall"),
    ],
)
def test_without_tests_there_is_still_evidence(tmp_path: Path, files: dict[str, str], word: str) -> None:
    _, runbook = written(tmp_path, files)
    (stage,) = runbook.stages
    assert stage.run and word in " ".join(stage.run)
    assert stage.expect["artifacts"]


@pytest.mark.parametrize(
    ("files", "last"),
    [
        ({"CMakeLists.txt": "project(x)\nif (T)\n  enable_testing()\nendif ()\n", "Makefile": "test:\n"}, "ctest"),
        ({"CMakeLists.txt": "# enable_testing()\n", "Makefile": "test := 1\nall:\ncheck: all\n"}, "make check"),
        ({"test/a.bats": "", "test/more/b.bats": "", "docs/conf.py": ""}, "bats test"),
    ],
)
def test_tests_that_are_none_of_pytests_are_run_by_their_runner(
    tmp_path: Path, files: dict[str, str], last: str
) -> None:
    _, runbook = written(tmp_path, files)
    (stage,) = runbook.stages
    assert stage.name == "tests" and stage.expect["artifacts"]
    assert stage.shell is not None and stage.shell.splitlines()[-1].startswith(last)
    written(tmp_path, {"tests/test_x.py": "def test(): ..."})
    assert survey(tmp_path)[0].other_tests == []


def test_benches_of_one_name_are_stages_of_their_own(tmp_path: Path) -> None:
    bench = "import time\nif __name__ == '__main__': pass\n"
    _, runbook = written(tmp_path, {"test_x.py": "", **{f"benchmarks/{n}/run.py": bench for n in "abcd"}})
    assert [stage.name for stage in runbook.stages] == ["tests", "bench_run", "bench_run_1", "bench_run_2"]


def test_a_folder_src_of_c_alone_is_no_src_layout(tmp_path: Path) -> None:
    setup = "from setuptools import Extension, setup\nsetup(ext_modules=[Extension('x._x', ['src/_x.c'])])\n"
    files = {"setup.py": setup, "src/_x.c": "", "x/__init__.py": "", "x/tests/test_a.py": "def test(): assert 1"}
    _, runbook = written(tmp_path, files)
    assert [stage.name for stage in runbook.stages] == ["build", "tests"]


def test_a_bench_that_is_collected_with_the_tests_is_no_stage_of_its_own(tmp_path: Path) -> None:
    bench = "import time\ndef test_speed(benchmark): benchmark(len, 'a')\n"
    files = {f"{folder}/test_a_benchmarks.py": bench for folder in ("tests", "perf")}
    _, runbook = written(tmp_path, {"tests/test_x.py": "", **files})
    assert [stage.run[-1] for stage in runbook.stages if stage.run] == ["tests", "perf/test_a_benchmarks.py"]


def test_a_bench_that_reads_its_arguments_at_the_top_is_a_program_too(tmp_path: Path) -> None:
    bench = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
    _, runbook = written(tmp_path, {"test_x.py": "", "bench/bench.py": bench, "bench/shapes.py": "SHAPES = [1, 2]\n"})
    assert [stage.name for stage in runbook.stages] == ["tests", "bench"]


@pytest.mark.parametrize(
    ("asks", "wants"),
    [
        ("add_argument('--out', '-o', required=True)", "--out"),
        ("add_argument('--out', required=True); p.add_argument('size', type=int)", "--out and size"),
        ("add_argument('sizes', nargs='*'); p.add_argument('--out', default=['x.csv'])", ""),
        ("add_argument('size', nargs='?', default=4); p.add_argument('--n', required=False)", ""),
    ],
)
def test_what_a_bench_does_not_run_without_is_said(tmp_path: Path, asks: str, wants: str) -> None:
    bench = f"import argparse\np = argparse.ArgumentParser()\np.{asks}\nprint(p.parse_args())\n"
    text, _ = written(tmp_path, {"test_x.py": "", "bench/bench_a.py": bench})
    assert (f"    # It does not run without {wants}: add what you would type.\n" in text) == bool(wants)
    assert ("does not run without" in text) == bool(wants)


def test_a_bench_that_prints_at_the_top_is_a_program_and_its_imports_are_installed(tmp_path: Path) -> None:
    bench = "import time\nimport tabulate, fastsum\nprint(tabulate.tabulate([[time.time()]]))\n"
    peer = "import torch, rival\nprint('cuda', rival, torch)\n"
    files = {"fastsum/__init__.py": "import numpy\n", "bench/bench_a.py": bench, "bench/bench_b.py": peer}
    text, runbook = written(tmp_path, files)
    assert [stage.name for stage in runbook.stages] == ["import", "bench_a", "bench_b"]
    assert runbook.environment.extra == ["pytest", "numpy", "tabulate"]
    assert "  # left out, as only benches for CUDA import them: rival\n" in text


@pytest.mark.parametrize("event", ["", "import torch\nEVENT = torch.cuda.Event\n"])
def test_a_bench_needs_what_its_helpers_need(tmp_path: Path, event: str) -> None:
    bench = "import torch\nfrom {} import report\nif __name__ == '__main__': report()\n"
    helpers = {"lib.py": "import table\nfrom table import report\n", "table.py": f"import pandas\n{event}"}
    files = {"bench_a.py": bench.format("lib"), **helpers, "other.py": "import scipy\n"}
    text, runbook = written(tmp_path, {"test_x.py": "", **{f"bench/{name}": each for name, each in files.items()}})
    (made,) = (stage for stage in runbook.stages if stage.name == "bench_a")
    assert made.when == (["cuda"] if event else [])
    assert ("import them: pandas\n" if event else 'extra: ["pytest", "pandas"]\n') in text and "scipy" not in text


def test_what_lies_in_the_folder_of_a_benchmark_and_measures_nothing_is_none(tmp_path: Path) -> None:
    files = {"tasks/basque_bench/make.py": "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"}
    _, runbook = written(tmp_path, {"test_x.py": "", **files})
    assert [stage.name for stage in runbook.stages] == ["tests"]


def test_a_bench_that_pytest_collects_is_run_by_it(tmp_path: Path) -> None:
    _, runbook = written(tmp_path, {"test_x.py": "", "benchmarks/writes_test.py": "def test_it(benchmark): ..."})
    assert runbook.stages[1].run == ["python", "-m", "pytest", "-q", "benchmarks/writes_test.py"]


CHECK = "import torch\nfrom pkg import f\ndef main():\n  {}\nif __name__ == '__main__':\n  main()\n"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"assert.py": CHECK.format("assert f(1)")}, ("checks", ["assert.py"])),
        ({"test/test_x.py": CHECK.format("torch.testing.assert_close(f(1), 1)")}, ("checks", ["test/test_x.py"])),
        ({"test_x.py": "import torch\nassert torch.cuda.is_available()"}, ("checks_gpu", ["test_x.py"])),
        ({"assert.py": CHECK.format("assert f('--use-cuda', 'cuda')")}, ("checks", ["assert.py"])),
        (
            {"test/test_x.py": CHECK.format("print('same:', torch.allclose(f('cuda'), f(1)))")},
            ("checks_gpu", ["test/test_x.py"]),
        ),
    ],
)
def test_programs_that_check_something_are_run(
    tmp_path: Path, files: dict[str, str], told: tuple[str, list[str]]
) -> None:
    _, runbook = written(tmp_path, {"setup.py": "", "pkg/__init__.py": "", **files})
    (stage,) = runbook.stages
    assert stage.shell is not None
    programs = [line.removeprefix("python ") for line in stage.shell.splitlines() if line.startswith("python ")]
    assert (stage.name, programs) == told


@pytest.mark.parametrize(
    ("files", "stages"),
    [
        ({"test.py": "def test(): assert 1\nif __name__ == '__main__': test()"}, ["tests"]),
        ({"tests/test_x.py": "def test(): assert 1\nif __name__ == '__main__': test()"}, ["tests"]),
        ({"check.py": "def equal(a, b): assert a == b\n"}, ["import"]),
        ({"train.py": CHECK.format("assert 1")}, ["import"]),
        ({"src/pkg/check_env.py": CHECK.format("assert 1"), "src/pkg/__init__.py": ""}, ["import"]),
        (
            {"tests/test_x.py": "def test(): run('run_check.py')", "tests/run_check.py": CHECK.format("assert 1")},
            ["tests"],
        ),
    ],
)
def test_what_only_looks_like_a_check(tmp_path: Path, files: dict[str, str], stages: list[str]) -> None:
    _, runbook = written(tmp_path, {"setup.py": "", "pkg/__init__.py": "", **files})
    assert [stage.name for stage in runbook.stages] == stages


@pytest.mark.parametrize(
    ("declared", "needs"), [("'torch'", {"numpy", "requests", "tqdm"}), ("'torch', 'pyserial'", {"tqdm"})]
)
def test_what_the_code_imports_where_nothing_is_declared(tmp_path: Path, declared: str, needs: set[str]) -> None:
    files = {
        "setup.py": f"from setuptools import setup\nsetup(name='gpt', install_requires=[{declared}])",
        "gpt/__init__.py": "",
        "gpt/model.py": "import torch, numpy\nfrom .bpe import encode\nfrom gpt import later\n",
        "gpt/bpe.py": "import requests\ntry:\n  import regex\nexcept ImportError: ...",
        "gpt/later.py": "def f():\n  import jax",
        "gpt/trainer.py": "import wandb",
        "tests/test_x.py": "import tqdm\nfrom gpt.model import GPT\ndef test(): assert GPT()",
    }
    _, runbook = written(tmp_path, files)
    assert set(runbook.environment.extra) - {"pytest", "pyserial"} == needs


def test_tests_for_cuda_and_reasons_are_those_of_the_chosen_tests(tmp_path: Path) -> None:
    test = "import torch, pytest\n@pytest.mark.skip(reason='needs {0}')\ndef test_it(): assert 'cuda'\n"
    files = {"tests/test_x.py": test.format("a network"), "pkg/scripts/test_script.py": test.format("a cluster")}
    text, runbook = written(tmp_path, files)
    assert [stage.run[-1] for stage in runbook.stages if stage.run] == ["tests", "tests/test_x.py"]
    assert "needs a network" in text and "needs a cluster" not in text


def test_a_module_of_a_folder_of_benches_is_no_bench(tmp_path: Path) -> None:
    helper = "import time, argparse\ndef parse(): return argparse.ArgumentParser().parse_args()\n"
    files = {"benches/run.py": "import time\nif __name__ == '__main__': ...\n", "benches/utils.py": helper}
    _, runbook = written(tmp_path, {"test_x.py": "", **files})
    assert [stage.name for stage in runbook.stages] == ["tests", "bench_run"]


def test_modules_are_told_by_their_distributions(tmp_path: Path) -> None:
    write_files(tmp_path, {"pkg/__init__.py": "import cuda\nimport torch\n", "pkg/k.cu": ""})
    assert survey(tmp_path)[0].told().endswith("CUDA and cuda-python and torch")


@pytest.mark.parametrize(
    ("extensions", "stages", "requires"),
    [
        ("CUDAExtension('k', ['k.cu'])", ["tests"], ["cuda"]),
        ("CppExtension('c', ['c.cpp']), CUDAExtension('k', ['k.cu'])", ["tests", "gpu"], []),
    ],
)
def test_an_extension_for_cuda_alone_is_not_built_without_a_gpu(
    tmp_path: Path, extensions: str, stages: list[str], requires: list[str]
) -> None:
    setup = f"from setuptools import setup\nsetup(name='k', ext_modules=[{extensions}])\n"
    files = {"setup.py": setup, "k.cu": "", "tests/test_k.py": "import torch\ndef test_it(): assert 'cuda'\n"}
    _, runbook = written(tmp_path, files)
    assert ([stage.name for stage in runbook.stages], runbook.requires) == (stages, requires)
    assert ("a compiled extension for CUDA" in survey(tmp_path)[0].told()) is bool(requires)
