"""What Python's interpreters are called: `python`, `python3.12`, `python3.13t`, `pypy3`, in folders too; `{python}`."""

from __future__ import annotations

import os
import re
from typing import Optional

NAME = r"(?:python|pypy)w?(?:\d+(?:\.\d+)*[dmtu]*)?(?:\.exe)?"
"""A pattern, for those who read a file name with it where this module is not: the injected ones."""
_NAME = re.compile(NAME)
_OURS = re.compile(r"\{python\}|python(?P<version>\d+(?:\.\d+)?)?")


def is_python(program: str) -> bool:
    """Whether the program, with or without its folder, is called as an interpreter is."""
    name = os.path.basename(program)
    return name == "{python}" or _NAME.fullmatch(name) is not None


def version_meant(program: str) -> Optional[str]:
    """Of a word that means the environment's Python, which ones may: 3 or 3.12, blank for any. None for other words."""
    found = _OURS.fullmatch(program)
    return None if found is None else found["version"] or ""
