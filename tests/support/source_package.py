"""A tiny stand-in for flash-attn's source distribution: a C extension, compiled by ninja as its setup.py says."""

from __future__ import annotations

from pathlib import Path

from tests.support.files import write_tar

_SETUP = '''
import os
import subprocess
import sysconfig

import psutil  # the real one's setup.py needs it
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

assert os.environ["FLASH_ATTENTION_FORCE_BUILD"] == "TRUE"
parts = ["entry", "forward", "backward"]


class Ninja(build_ext):
    """One object a file, by ninja, as torch's own BuildExtension does it."""

    def build_extension(self, ext):
        here, there = os.path.abspath("csrc"), os.path.abspath(self.build_temp)
        os.makedirs(there, exist_ok=True)
        flags = f"-fPIC -I{sysconfig.get_path('include')}"
        flags += f' -DARCHS="\\\\"{os.environ["FLASH_ATTN_CUDA_ARCHS"]}\\\\"" -DJOBS={os.environ["MAX_JOBS"]}'
        lines = ["rule cc", f"  command = sleep {os.environ.get('STEP_S', '0')} && cc {flags} -c $in -o $out", ""]
        lines += [f"build {there}/{part}.o: cc {here}/{part}.c" for part in parts]
        with open(f"{there}/build.ninja", "w") as f:
            f.write("\\n".join([*lines, ""]))
        subprocess.check_call(["ninja", "-v", "-C", there, "-j", os.environ["MAX_JOBS"]])
        target = self.get_ext_fullpath(ext.name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        subprocess.check_call(["cc", "-shared", "-o", target, *(f"{there}/{part}.o" for part in parts)])


local = os.environ.get("FLASH_ATTN_LOCAL_VERSION")
setup(
    name="flash_attn",
    version="2.8.3" + (f"+{local}" if local else ""),
    packages=["flash_attn"],
    ext_modules=[Extension("flash_attn_2_cuda", ["csrc/entry.c"])],
    cmdclass={"build_ext": Ninja},
    install_requires=["tool"],
    setup_requires=["packaging", "psutil", "ninja"],
)
'''
_ENTRY = """
#include <Python.h>
int forward(int);
int backward(int);
static PyObject *told(PyObject *self, PyObject *args) {
    return Py_BuildValue("sii", ARCHS, JOBS, backward(forward(20)));
}
static PyMethodDef methods[] = {{"told", told, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "flash_attn_2_cuda", 0, -1, methods};
PyMODINIT_FUNC PyInit_flash_attn_2_cuda(void) { return PyModule_Create(&module); }
"""


def make_source(folder: Path, *, broken: bool = False) -> Path:
    """flash_attn-2.8.3.tar.gz in `folder`; a `broken` one does not compile."""
    files = {
        "setup.py": _SETUP,
        "PKG-INFO": "Metadata-Version: 2.1\nName: flash_attn\nVersion: 2.8.3\n",
        "flash_attn/__init__.py": "from flash_attn_2_cuda import told\n",
        "csrc/entry.c": _ENTRY,
        "csrc/forward.c": f"int forward(int x) {{ return {'undeclared' if broken else 'x + 1'}; }}\n",
        "csrc/backward.c": "int backward(int x) { return 2 * x; }\n",
    }
    packed = {f"flash_attn-2.8.3/{name}": text for name, text in files.items()}
    return write_tar(folder / "flash_attn-2.8.3.tar.gz", packed)
