"""Write the packaged examples where a user can change them."""

from __future__ import annotations

import shutil
from pathlib import Path

from orchestrator.config.inventory import FILENAME
from orchestrator.config.runbook import examples
from orchestrator.errors import InputError


def init(folder: Path) -> list[Path]:
    """Copy pods.yaml and runbooks/ into `folder`; the files written. What exists stays as it is."""
    source = examples()
    written = []
    for example in (source / FILENAME, *sorted((source / "runbooks").rglob("*.*"))):
        target = folder / example.relative_to(source)
        if target.exists():
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(example, target)
        except OSError as e:
            raise InputError(f"{target} cannot be written: {e.strerror or e}") from e
        written.append(target)
    return written
