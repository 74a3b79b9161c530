"""Which of a commit's files are code, or steer what runs: to write one of these and set it back costs the credit."""

from __future__ import annotations

import posixpath

_SUFFIXES = frozenset(
    ".py .pyi .pyx .pxd .pxi .pth .pyc .c .cc .cpp .cxx .h .hh .hpp .hxx .cu .cuh .cl .hip .ptx .s .S .f .f90 .inc .rs "
    ".go .java .js .mjs .ts .lua .jl .r .R .pl .rb .so .pyd .dylib .a .o .whl .sh .bash .zsh .bat .cmake .mk .in "
    ".j2".split()
)
# What other files of settings hold (.toml, .ini) is data of the programs that read them, as JSON and YAML are.
_NAMES = frozenset(
    "Makefile GNUmakefile makefile CMakeLists.txt Dockerfile justfile .coveragerc pyproject.toml setup.cfg tox.ini "
    "pytest.ini .pytest.ini pytest.toml .pytest.toml uv.toml Cargo.toml".split()
)
_EXECUTABLE = "100755"


def is_code(path: str, mode: str) -> bool:
    """By its name; a program without a suffix by its mode."""
    name = posixpath.basename(path)
    suffix = posixpath.splitext(name)[1]
    return suffix in _SUFFIXES or name in _NAMES or (not suffix and mode == _EXECUTABLE)
