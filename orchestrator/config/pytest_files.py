"""Which files hold tests of pytest, by their names and their text."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

TESTS_FOLDER = re.compile(r"_*tests?_*|testing")
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")
_BY_NAME = re.compile(r"tests?\.py")
_WRITTEN_TEST = re.compile(r"^\s*(?:(?:async\s+)?def|class)\s+\w*test|import \*", re.IGNORECASE | re.MULTILINE)


def is_test_file(path: PurePosixPath) -> bool:
    """Whether pytest collects it where nothing else is configured."""
    return bool(_TEST_FILE.fullmatch(path.name))


def is_called_tests(path: PurePosixPath) -> bool:
    """A test.py, which pytest collects where it is named."""
    return bool(_BY_NAME.fullmatch(path.name))


def writes_tests(text: str) -> bool:
    return bool(_WRITTEN_TEST.search(text))
