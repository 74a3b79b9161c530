"""Builds the zipapp of the agent, on the laptop: the same bytes from the same sources, wherever and whenever."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

SHIPPED = ("agent", "shared", "verdict")
"""The packages that the pod gets: standard library only, Python 3.8."""

_ROOT = Path(__file__).parents[1]
_ENTRY = "import sys\n\nfrom orchestrator.agent.commands import main\n\nsys.exit(main(sys.argv[1:]))\n"
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that zip can say


def build() -> tuple[bytes, str]:
    """The zipapp's bytes and their SHA-256, of which its file name on the pod carries the first digits."""
    files = {"__main__.py": _ENTRY.encode(), "orchestrator/__init__.py": b""}
    for path in sources():
        files[f"orchestrator/{path.relative_to(_ROOT).as_posix()}"] = path.read_bytes()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:  # not compressed: zlibs differ
        for name, content in files.items():
            info = zipfile.ZipInfo(name, _DATE)
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    data = out.getvalue()
    return data, hashlib.sha256(data).hexdigest()


def sources() -> list[Path]:
    """What is shipped: modules, and what bash reads."""
    found = (path for package in SHIPPED for path in (_ROOT / package).rglob("*"))
    return sorted(path for path in found if path.suffix in (".py", ".bash"))
