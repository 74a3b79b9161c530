"""A package in src layout with a C extension, and a build system of its own that needs nothing from an index."""

from __future__ import annotations

_BACKEND = """
import base64, glob, hashlib, os, subprocess, sysconfig, zipfile
import settings

asked = False  # PEP 517: each hook is called in a process of its own


def get_requires_for_build_wheel(config_settings=None):
    global asked
    asked = True
    return settings.BUILD_REQUIRES


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    assert not asked
    for module in settings.BUILD_REQUIRES:
        __import__(module)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    include = sysconfig.get_path("include")
    subprocess.check_call(["cc", "-shared", "-fPIC", f"-I{include}", "src/toy/_c.c", "-o", f"_c{suffix}"])
    print("jobs", os.environ["MAX_JOBS"])
    needs = "".join(f"Requires-Dist: {text}\\n" for text in settings.REQUIRES)
    content = {
        **{file[len("src/") :]: open(file, "rb").read() for file in glob.glob("src/toy/**/*.py", recursive=True)},
        f"toy/_c{suffix}": open(f"_c{suffix}", "rb").read(),
        "toy-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\\nName: toy\\nVersion: 1.0\\n{needs}".encode(),
        "toy-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "toy-1.0.dist-info/entry_points.txt": b"[console_scripts]\\nsay-toy = toy:main\\n",
    }
    rows = []
    for name, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}")
    content["toy-1.0.dist-info/RECORD"] = "\\n".join([*rows, "toy-1.0.dist-info/RECORD,,", ""]).encode()
    with zipfile.ZipFile(os.path.join(wheel_directory, "toy-1.0-py3-none-any.whl"), "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return "toy-1.0-py3-none-any.whl"
"""
_C = """
#include <Python.h>
static PyObject *value(PyObject *self, PyObject *args) {{ return PyLong_FromLong({value}); }}
static PyMethodDef methods[] = {{{{"value", value, METH_NOARGS, ""}}, {{0}}}};
static struct PyModuleDef module = {{PyModuleDef_HEAD_INIT, "_c", 0, -1, methods}};
PyMODINIT_FUNC PyInit__c(void) {{ return PyModule_Create(&module); }}
"""
_PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["build_system"]

[project]
name = "toy"
version = "1.0"
dynamic = ["dependencies"]
"""


def toy(value: object = 1, *, requires: tuple[str, ...] = (), build_requires: tuple[str, ...] = ()) -> dict[str, str]:
    """The files of a toy whose `toy.value()` is `value`; that it `requires` something, only a build tells."""
    return {
        "pyproject.toml": _PYPROJECT,
        "build_system/backend.py": _BACKEND,
        "build_system/settings.py": f"REQUIRES = {list(requires)!r}\nBUILD_REQUIRES = {list(build_requires)!r}\n",
        "src/toy/__init__.py": "from toy._c import value\n\n\ndef main():\n    print('toy', value())\n",
        "src/toy/_c.c": _C.format(value=value),
        "tests/test_toy.py": f"import toy\n\n\ndef test_value():\n    assert toy.value() == {value}\n",
    }
