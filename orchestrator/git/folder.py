"""The files of a folder as blobs of git, whatever else they are: they travel to a pod as a commit's do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.files import Writer
from orchestrator.git.repository import Entry
from orchestrator.shared.tree import entry_of

_PIECE = 1 << 20


class Folder:
    """The regular files in `root`, but for what is in folders of it, as they were when this was made."""

    def __init__(self, root: Path) -> None:
        found = {path: entry_of(path)[1] for path in sorted(root.iterdir()) if path.is_file() and not path.is_symlink()}
        self.files = {path.name: Entry("100644", blob, self) for path, blob in found.items()}
        self._paths = {blob: path for path, blob in found.items()}

    def sizes(self, blobs: Sequence[str]) -> list[int]:
        """As `Blobs` has it."""
        return [self._paths[blob].stat().st_size for blob in blobs]

    def write_blobs(self, blobs: Sequence[str], out: Writer, skip: int = 0) -> None:
        """As `Blobs` has it."""
        for blob in blobs:
            path = self._paths[blob]
            with path.open("rb") as f:
                head = f"{blob} blob {path.stat().st_size}\n".encode()
                out.write(head[skip:])
                f.seek(max(0, skip - len(head)))
                while piece := f.read(_PIECE):
                    out.write(piece)
            out.write(b"\n")
            skip = 0
