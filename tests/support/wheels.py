"""Tiny wheels, made on the spot: what an installer sees of a package, without the package."""

from __future__ import annotations

import base64
import hashlib
import platform
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.files import write_tar


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    script: bool = False,
) -> Path:
    """A wheel of `name` in `folder` with one module (and `files`); with `script`, a console script of its name."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {r}\n" for r in requires)
    content = {
        f"{module}/__init__.py": f"__version__ = {version!r}\n\n\ndef main() -> None:\n    print({name + ' runs'!r})\n",
        **(files or {}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        content[f"{info}/entry_points.txt"] = f"[console_scripts]\n{name} = {module}:main\n"
    rows = [f"{path},sha256={_digest(text)},{len(text.encode())}" for path, text in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return wheel


_BACKEND = """
import zipfile


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    info = "{module}-{version}.dist-info"
    with zipfile.ZipFile(wheel_directory + "/{module}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr("{module}/__init__.py", "BUILT = True")
        archive.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        archive.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(info + "/RECORD", "{module}/__init__.py,,\\n" + info + "/METADATA,,\\n" + info + "/WHEEL,,\\n")
    return "{module}-{version}-py3-none-any.whl"
"""


def make_sdist(folder: Path, name: str, version: str) -> Path:
    """A source distribution in `folder` with a build system of its own."""
    module = name.replace("-", "_")
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\n',
        "backend.py": _BACKEND.format(name=name, module=module, version=version),
        "PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n",
    }
    packed = {f"{module}-{version}/{file}": text for file, text in files.items()}
    return write_tar(folder / f"{module}-{version}.tar.gz", packed)


def make_uv_wheel(folder: Path, uv: Path, version: str = "99.0.0") -> Path:
    """A wheel of uv for this machine in `folder`; its binary hands on to `uv`."""
    machine = platform.machine()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"uv-{version}-py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"uv-{version}.data/scripts/uv", f'#!/bin/sh\nexec {uv} "$@"\n')
    return wheel


def make_index(folder: Path, wheels: Sequence[Path]) -> str:
    """A simple index of `wheels` below `folder`; its address."""
    for wheel in wheels:
        project = folder / wheel.name.split("-")[0].replace("_", "-")
        project.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        with (project / "index.html").open("a") as page:
            page.write(f'<a href="{wheel.absolute().as_uri()}#sha256={digest}">{wheel.name}</a>\n')
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute().as_uri()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
