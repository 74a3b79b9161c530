"""Write what a repository needs to be validated: an inventory, a runbook that fits, the schemas for editors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.config import json_schema, starter
from orchestrator.config.inventory import FILENAME
from orchestrator.config.metadata import Metadata
from orchestrator.config.runbook import FOLDER, locate_runbook, own_runbooks
from orchestrator.config.survey import Survey, survey
from orchestrator.errors import InputError
from orchestrator.git.repository import ignored, is_bare
from orchestrator.text import plain


@dataclass
class Begun:
    """What was `found` in the repository, the files that were `written`, and those that were there and were `kept`;
    `advice` is what else the repository needs.
    """

    found: str
    advice: str = ""
    written: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)


def init(folder: Path) -> Begun:
    """Look at the repository in `folder` and write what it lacks. What exists stays as it is."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: expected that of a repository")
    if is_bare(folder):
        raise InputError(
            f"{folder.resolve()} is a bare repository, or git's own folder: expected a repository with its files"
        )
    found = survey(folder, ignored(folder))
    broken = Metadata(folder).broken
    advice = [f"pyproject.toml is not valid TOML, and nothing of it was taken: {plain(broken)}"] if broken else []
    advice += filter(None, map(_advice, found))
    done = Begun("; ".join(project.told() for project in found), "; ".join(advice))
    _write(folder / FILENAME, starter.PODS, done)
    own = [locate_runbook(name, folder)[0] for name in own_runbooks(folder)]
    done.kept += own
    if not own:
        _write(folder / FOLDER / f"{starter.NAME}.yaml", starter.runbook(found), done)
    if done.written:
        for name, text in json_schema.texts().items():
            _write(folder / FOLDER / starter.SCHEMAS / name, text, done)
    return done


def _advice(found: Survey) -> str:
    """setuptools takes every folder at the top for a package, and builds nothing where it finds several."""
    if not found.discovered:
        return ""
    setting = "packages" if found.packages or "." in found.discovered else "py-modules"
    return (
        f"setuptools finds {found.discovered} by itself, and will take runbooks/ and artifacts/ for packages: name "
        f'what is to be installed, or `pip install .` fails ([tool.setuptools] {setting} = ["{found.discovered}", ...])'
    )


def _write(path: Path, text: str, done: Begun) -> None:
    if path.exists():
        done.kept.append(path)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise InputError(f"{path} cannot be written: {e.strerror or e}") from e
    done.written.append(path)
