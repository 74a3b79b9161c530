"""How pytest has to import tests where a package at the top must not hide what is installed of it, compiled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from orchestrator.config.pytest_files import is_test_file

_TOP = PurePosixPath(".")


def import_mode(files: Iterable[str], tests: Sequence[str]) -> str:
    """Of a project with these files, of which those in `tests` are named to pytest; blank where its own way will do.

    That puts in front of all else, of each conftest.py and file of tests, the first folder upward that is no package.
    `append` puts it last, and finds only the first of two modules of one name: then `importlib`, which has no names.
    """
    paths = [PurePosixPath(file) for file in files]
    packages = {path.parent for path in paths if path.name == "__init__.py"}
    named = {PurePosixPath(test) for test in tests}
    around = {folder for test in named for folder in test.parents}
    imported: set[tuple[PurePosixPath, PurePosixPath]] = set()
    for path in paths:
        is_conftest, is_below = path.name == "conftest.py", bool(named & {path, *path.parents})
        if (is_below and (is_conftest or is_test_file(path))) or (is_conftest and path.parent in around):
            base = next((folder for folder in path.parents if folder not in packages), _TOP)
            imported.add((base, path.relative_to(base)))
    if _TOP not in {base for base, _ in imported}:
        return ""
    return "append" if len({module for _, module in imported}) == len(imported) else "importlib"
