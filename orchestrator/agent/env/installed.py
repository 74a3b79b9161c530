"""What is installed in an environment, by the RECORD that each wheel leaves (nothing is imported)."""

from __future__ import annotations

import base64
import csv
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.parser import BytesParser
from pathlib import Path

from orchestrator.shared.files import sha256, walk
from orchestrator.shared.wheels.lockfile import canonical

# What venv and uv put there themselves.
_OF_THE_ENVIRONMENT = frozenset(["_virtualenv.py", "_virtualenv.pth"])
_DIST_INFO = re.compile(r"^(?P<name>.+)-(?P<version>[^-]+)\.dist-info$")


def site_packages(root: Path) -> Path:
    """The one site-packages of a virtual environment; FileNotFoundError if it has none."""
    found = sorted(root.glob("lib/python*/site-packages"))
    if not found:
        raise FileNotFoundError(f"{root} has no site-packages")
    return found[0]


def installed(root: Path) -> dict[str, str]:
    """Name -> version of every distribution, from the names of their dist-info directories."""
    return {name: version for name, version, _ in _distributions(site_packages(root))}


def requirements(root: Path) -> dict[str, list[str]]:
    """Name -> what each distribution says that it requires."""
    texts = {name: (folder / "METADATA").read_bytes() for name, _, folder in _distributions(site_packages(root))}
    said = {name: BytesParser().parsebytes(text, headersonly=True) for name, text in texts.items()}
    return {name: message.get_all("Requires-Dist") or [] for name, message in said.items()}


def differences(root: Path) -> list[tuple[str, str]]:
    """(package, file) of each file that is missing or whose content is not what its package's RECORD says."""
    return _differences(site_packages(root))


def strangers(root: Path) -> list[str]:
    """Files below site-packages that no package's RECORD lists, but for bytecode."""
    return _strangers(site_packages(root))


def is_as_recorded(site: Path) -> bool:
    """Whether the packages' RECORDs list all that is in a site-packages, with the content that it has."""
    return not _strangers(site) and not _differences(site)


def _differences(site: Path) -> list[tuple[str, str]]:
    recorded = ((name, *entry) for name, _, folder in _distributions(site) for entry in _listed(folder))
    entries = [entry for entry in recorded if entry[2]]
    with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
        wrong = pool.map(lambda entry: _sha256(site / entry[1]) != entry[2], entries)
        return [entries[i][:2] for i, is_wrong in enumerate(wrong) if is_wrong]


def _strangers(site: Path) -> list[str]:
    owned = {file for _, _, folder in _distributions(site) for file, _ in _listed(folder)}
    found = (name for name, _ in walk(site) if not name.endswith(".pyc"))
    return sorted(name for name in found if name not in owned and name not in _OF_THE_ENVIRONMENT)


def _distributions(site: Path) -> Iterator[tuple[str, str, Path]]:
    """(name, version, dist-info directory)."""
    for folder in sorted(site.glob("*.dist-info")):
        match = _DIST_INFO.match(folder.name)
        if match:
            yield canonical(match["name"]), match["version"], folder


def _listed(folder: Path) -> Iterator[tuple[str, str]]:
    """(path, digest in RECORD's own notation or "") of each file of the package itself.

    Scripts lie outside: installers write them, for the Python that they install for.
    """
    record = folder / "RECORD"
    if not record.is_file():
        yield f"{folder.name}/RECORD", "there must be one"
        return
    with record.open(encoding="utf-8", newline="") as f:
        for row in csv.reader(f):
            if len(row) == 3 and not row[0].startswith(".."):
                yield row[0], row[1][len("sha256=") :] if row[1].startswith("sha256=") else ""


def _sha256(path: Path) -> str | None:
    try:
        return base64.urlsafe_b64encode(bytes.fromhex(sha256(path))).rstrip(b"=").decode()
    except OSError:
        return None
