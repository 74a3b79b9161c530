"""A git revision -> the exact tree it names: blobs as they are, no filter, no line-ending conversion, submodules too.

Everything is read from git's objects; the working tree is only looked at to say what of it will not be shipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.errors import InputError
from orchestrator.files import Writer
from orchestrator.shared import tree as on_disk
from orchestrator.shared.plan import Submodule
from orchestrator.text import nearest, plain

_LIMIT_S = 600
_CHUNK = 1 << 20

_KINDS = ("tags", "heads")
_EXECUTABLE, _LINK, _SUBMODULE = "100755", "120000", "160000"
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_HEX = re.compile(r"[0-9a-fA-F]{4,40}\Z")
_MAY_BE_OLD = re.compile(rf"{_HEX.pattern}|.*[~^]", re.DOTALL)
_MAX_BASES = 8
_HINT_LENGTH = 200
# What git itself would refuse to check out (git-fsck(1): hasDot, hasDotdot, hasDotgit).
_RESERVED = re.compile(r"(\.{0,2}|git~1|\.git[. ]*)\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Revision:
    """A commit and its tree, as 40 hex digits each."""

    commit: str
    tree: str


class Blobs(Protocol):
    """What has blobs: a repository, or a folder of files."""

    def sizes(self, blobs: Sequence[str]) -> list[int]:
        """How many bytes each of the blobs has. Raises InputError for one that is not there."""

    def write_blobs(self, blobs: Sequence[str], out: Writer, skip: int = 0) -> None:
        """Write the blobs as `git cat-file --batch` does, in the order asked, each after a line with its name; but for
        the first `skip` bytes of all that. Raises InputError.
        """


@dataclass(frozen=True)
class Entry:
    """A file of a tree: git's mode (100644, 100755 or 120000), its blob, and who has the blob."""

    mode: str
    blob: str
    store: Blobs

    @property
    def is_link(self) -> bool:
        return self.mode == _LINK

    @property
    def is_executable(self) -> bool:
        return self.mode == _EXECUTABLE


@dataclass(frozen=True)
class Contents:
    """All files of a revision by path, those of submodules included, and the submodules, outer ones first.

    Nothing is shipped of a submodule that this clone does not have, as in a clone of git's.
    """

    files: Mapping[str, Entry]
    submodules: tuple[Submodule, ...]


@dataclass(frozen=True)
class Repository:
    """A git repository. `root` is where its working tree is (its own directory if it is bare)."""

    root: Path
    git_dir: Path
    bare: bool

    @classmethod
    def open(cls, folder: Path) -> Repository:
        """The repository that `folder` is in. Raises InputError."""
        if not os.path.isdir(folder):  # False also for what cannot be a path
            raise InputError(f"{folder} is not a directory: expected a git repository")
        where = folder.absolute()
        wanted = ("--is-bare-repository", "--show-object-format", "--absolute-git-dir")
        done = run(["git", "-C", str(where), "rev-parse", *wanted])
        if done.returncode != 0:
            raise InputError(_not_a_repository(where, done.stderr.decode(errors="replace")))
        bare, object_format, git_dir = os.fsdecode(done.stdout).rstrip("\n").split("\n", 2)
        if object_format != "sha1":
            raise InputError(
                f"{where} stores {object_format} objects: only repositories with sha1 objects are supported"
            )
        if bare == "true":
            return cls(Path(git_dir), Path(git_dir), True)
        top = run(["git", "-C", str(where), "rev-parse", "--show-toplevel"])
        if top.returncode != 0:
            raise InputError(f"{where} is inside a .git directory: expected a repository's working tree")
        return cls(Path(os.fsdecode(top.stdout).rstrip("\n")), Path(git_dir), False)

    def revision(self, name: str) -> Revision:
        """Whatever git resolves to a commit: a branch, a tag, HEAD~2, an abbreviated hash. Raises InputError."""
        done = self._git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        if done.returncode != 0:  # `:/text` takes the suffix for a part of the text
            named = self._git("rev-parse", "--verify", "--end-of-options", name).stdout.decode(errors="replace").strip()
            if not self.has_commit(named):
                raise InputError(self._unresolved(name, done.stderr.decode(errors="replace")))
            return Revision(named, self._tree_of(named))
        commit = done.stdout.decode().strip()
        if not _COMMIT.match(commit):  # `^HEAD`: what it leaves out
            raise InputError(f"revision {plain(repr(name))} in {self.root} is not a commit")
        if b" is ambiguous" in done.stderr and not _is_exact(name):
            self._refuse_two(name, commit)  # git prefers a tag, and what lies aside of both, and only warns
        if _HEX.match(name) and not commit.startswith(name.lower()):
            other = next((line[:12] for line in self._disambiguated(name) if line.endswith(" commit")), None)
            if other:  # git prefers the name, and only warns
                raise InputError(f"{plain(name)!r} in {self.root} is commit {other}, and a name of {commit[:12]}")
        return Revision(commit, self._tree_of(commit))

    def _refuse_two(self, name: str, taken: str) -> None:
        """InputError where the name is also a tag or a branch of another commit than the one that git has `taken`."""
        found = ((kind, self.said("rev-parse", "--verify", f"refs/{kind}/{name}^{{commit}}")) for kind in _KINDS)
        meant = {f"{kind}/{plain(name)}": commit.decode().strip() for kind, commit in found if commit}
        if {*meant.values()} - {taken}:
            told = " or ".join(f"{known} ({commit[:12]})" for known, commit in meant.items())
            are = "a tag and a branch" if len(meant) == 2 else f"taken by git for commit {taken[:12]}"
            raise InputError(f"{plain(name)!r} in {self.root} is {are}: expected {told}")

    def has_commit(self, commit: str) -> bool:
        """Whether this repository holds the commit with this full hash."""
        return bool(_COMMIT.match(commit)) and self._git("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0

    def commit_object(self, commit: str) -> bytes:
        """The commit object's content, whose hash the commit is."""
        return self._output("cat-file", "commit", commit)

    def said(self, *arguments: str, stdin: bytes = b"") -> bytes | None:
        """What git answers to a question that it may have no answer to."""
        done = self._git(*arguments, stdin=stdin)
        return done.stdout if done.returncode == 0 else None

    def objects(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Kind and content of each of these small objects."""
        data = self._output("cat-file", "--batch", stdin="".join(f"{name}\n" for name in names).encode())
        at = 0
        for name in names:
            end = data.index(b"\n", at)
            found, kind, size = data[at:end].decode().split()
            if found != name:
                raise InputError(f"{self.root}: git gave the object {found} for {name}")
            at = end + 1 + int(size) + 1
            yield kind, data[end + 1 : at - 1]

    def blob_at(self, commit: str, path: str) -> bytes | None:
        """The content of the file at `path`, or None if the commit has none there."""
        done = self._git("cat-file", "blob", f"{commit}:{path}")
        return done.stdout if done.returncode == 0 else None

    def files_with(self, commit: str, text: str) -> list[str]:
        """The files of the commit (not of its submodules) that hold `text`; of several lines, the longest counts."""
        line = max(text.splitlines(), key=len, default="")
        # By stdin, since arguments are public; an empty pattern would match everything.
        done = self._git("grep", "-l", "-z", "-F", "-f", "-", commit, stdin=line.encode() + b"\n") if line else None
        names = done.stdout.decode(errors="replace").split("\0") if done else []
        return [name.partition(":")[2] for name in names if name]

    def dirty(self) -> list[str]:
        """Paths that differ from HEAD or that are neither tracked nor ignored: what a run of a commit does not have."""
        if self.bare:
            return []
        options = ("--porcelain=v1", "-z", "--untracked-files=normal", "--ignore-submodules=none", "--no-renames")
        found = self._output("status", *options)
        return [os.fsdecode(line[3:]) for line in found.split(b"\0") if line]

    def contents(self, revision: Revision) -> Contents:
        """Every file of the revision. Raises InputError for what cannot be shipped exactly, and names it."""
        return self.contents_of_tree(revision.tree)

    def contents_of_tree(self, tree: str) -> Contents:
        """As `contents`, for a tree that need not be a commit's."""
        files: dict[str, Entry] = {}
        submodules: list[Submodule] = []
        self._collect(tree, "", files, submodules)
        _refuse_dangerous(files, [s["path"] for s in submodules])
        _refuse_inexact(tree, files, submodules)
        return Contents(files, tuple(submodules))

    def nearest(self, tree: str, candidates: Iterable[str]) -> str | None:
        """The candidate tree with the fewest files to change to get `tree`; None if none of them is known here.

        Only the first few known ones are compared.
        """
        known = self._known_trees(name for name in candidates if _COMMIT.match(name))
        return min(known[:_MAX_BASES], key=lambda base: self.diff_size(base, tree), default=None)

    def diff_size(self, tree: str, other: str) -> int:
        """How many paths differ between two trees."""
        found = self._output(
            "diff-tree", "-r", "-z", "--name-only", "--no-renames", "--ignore-submodules=none", tree, other
        )
        return found.count(b"\0")

    def _known_trees(self, names: Iterable[str]) -> list[str]:
        lines = self._output("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin="\n".join(names).encode())
        found = (line.split() for line in lines.decode().splitlines())
        return [words[0] for words in found if words[1:] == ["tree"]]

    def _collect(self, tree: str, prefix: str, files: dict[str, Entry], submodules: list[Submodule]) -> None:
        links = {}
        for mode, blob, path in self._list(tree):
            if mode == _SUBMODULE:
                links[path] = blob
            else:
                files[prefix + path] = Entry(mode, blob, self)
        names = self._submodule_names(tree) if links else {}
        for path, commit in links.items():
            store = self._submodule(path, commit, names.get(path))
            inside = store._tree_of(commit) if store else on_disk.EMPTY
            submodules.append(Submodule(path=prefix + path, commit=commit, tree=inside))
            if store:
                store._collect(inside, f"{prefix}{path}/", files, submodules)

    def _list(self, tree: str) -> Iterator[tuple[str, str, str]]:
        for line in self._output("ls-tree", "-r", "-z", "--full-tree", tree).split(b"\0"):
            if line:
                head, _, path = line.partition(b"\t")
                mode, _, blob = head.decode().split()
                yield mode, blob, os.fsdecode(path)

    def _submodule_names(self, tree: str) -> dict[str, str]:
        """The names under which .gitmodules has its paths; git keeps a submodule's objects by its name."""
        done = self._git("config", "--blob", f"{tree}:.gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$")
        pairs = (os.fsdecode(item).split("\n", 1) for item in done.stdout.split(b"\0") if item)
        return {path: key.removeprefix("submodule.").removesuffix(".path") for key, path in pairs}

    def _submodule(self, path: str, commit: str, name: str | None) -> Repository | None:
        for git_dir in self._submodule_stores(path, name):
            store = Repository(git_dir if self.bare else self.root / path, git_dir, self.bare)
            if store.has_commit(commit):
                return store
        return None

    def _submodule_stores(self, path: str, name: str | None) -> Iterator[Path]:
        if name and ".." not in name.split("/"):
            found = self._output("rev-parse", "--path-format=absolute", "--git-path", f"modules/{name}")
            git_dir = Path(os.fsdecode(found).rstrip("\n"))
            if (git_dir / "objects").is_dir():
                yield git_dir
        checkout = self.root / path
        if not self.bare and (checkout / ".git").exists():
            done = run(["git", "-C", str(checkout), "rev-parse", "--absolute-git-dir"])
            if done.returncode == 0:
                yield Path(os.fsdecode(done.stdout).rstrip("\n"))

    def _tree_of(self, commit: str) -> str:
        return self._output("rev-parse", "--verify", f"{commit}^{{tree}}").decode().strip()

    def _unresolved(self, revision: str, said: str) -> str:
        what = f"revision {plain(repr(revision))} in {self.root}"
        begin = [line[:12] for line in self._disambiguated(revision)] if "is ambiguous" in said else []
        if len(begin) > 1:  # else it is a name that git warned of
            return f"{what} is ambiguous: expected more digits of one of {', '.join(begin)}"
        names = self._output("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/tags", "refs/remotes")
        if self._git("rev-parse", "--verify", "HEAD").returncode != 0 and revision.startswith("HEAD"):
            if names:
                return f"{self.root} is on a branch that has no commit{nearest(revision, os.fsdecode(names).split())}"
            return f"{self.root} has no commit yet: commit what is to be validated"
        if self._git("cat-file", "-e", revision).returncode == 0:
            return f"{what} is not a commit"
        if _MAY_BE_OLD.match(revision) and (self.git_dir / "shallow").exists():
            return f"{what} is unknown, and this clone is shallow: `git fetch --unshallow` gets the rest of the history"
        hint = nearest(revision, os.fsdecode(names).split())
        return f"{what} is unknown{hint if len(hint) <= _HINT_LENGTH else ': expected a branch, a tag or a commit'}"

    def _disambiguated(self, revision: str) -> list[str]:
        hashes = self._output("rev-parse", f"--disambiguate={_base(revision)}")
        lines = self._output("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=hashes).decode()
        return [line for line in lines.splitlines() if line.endswith((" commit", " tag"))]

    def sizes(self, blobs: Sequence[str]) -> list[int]:
        """As `Blobs` has it."""
        found = self._output("cat-file", "--batch-check=%(objecttype) %(objectsize)", stdin=_lines(blobs)).split(b"\n")
        lines = [line.split() for line in found[: len(blobs)]]
        for name, line in zip(blobs, lines, strict=True):
            if line[:1] != [b"blob"]:
                hint = " (this clone is shallow or partial)" if (self.git_dir / "shallow").exists() else ""
                raise InputError(
                    f"{self.root}: the object {name} is missing{hint}: expected a complete clone, see git fsck"
                )
        return [int(line[1]) for line in lines]

    def write_blobs(self, blobs: Sequence[str], out: Writer, skip: int = 0) -> None:
        """As `Blobs` has it; the content goes from git to `out` without a stop."""
        if not blobs:
            return
        with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as said:
            asked.write(_lines(blobs))
            asked.seek(0)
            argv = self._argv("cat-file", "--batch", "--buffer")
            process = subprocess.Popen(argv, stdin=asked, stdout=subprocess.PIPE, stderr=said, env=_environment())
            assert process.stdout is not None
            try:
                with process.stdout as found:
                    while skip and (piece := found.read(min(skip, _CHUNK))):
                        skip -= len(piece)
                    while piece := found.read(_CHUNK):
                        out.write(piece)
                code = process.wait()
            finally:
                process.kill()
                process.wait()
            said.seek(0)
            complaint = plain(said.read(_CHUNK).decode(errors="replace"), 300)
        if code != 0:
            raise InputError(f"{self.root}: git ended in the middle of an object, see git fsck: {complaint}")

    def _argv(self, *arguments: str) -> list[str]:
        # The working tree is named because a submodule's git directory may remember one that is gone.
        tree = self.git_dir if self.bare or not self.root.is_dir() else self.root
        return ["git", "--git-dir", str(self.git_dir), "--work-tree", str(tree), *arguments]

    def _git(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return run(self._argv(*arguments), stdin)

    def _output(self, *arguments: str, stdin: bytes = b"") -> bytes:
        done = self._git(*arguments, stdin=stdin)
        if done.returncode != 0:
            said = plain(done.stderr.decode(errors="replace"), 300)
            hint = "; this clone is shallow" if (self.git_dir / "shallow").exists() else ""
            raise InputError(f"{self.root}: git {arguments[0]} failed: {said}{hint}")
        return done.stdout


def _base(revision: str) -> str:
    """What `~2`, `^`, `@{1}` and `:FILE` are appended to."""
    return re.split("[~^@:]", revision)[0]


def _is_exact(revision: str) -> bool:
    """Whether it begins with HEAD, @ or a full hash: no tag or branch of that name takes their place."""
    base = _base(revision)
    return base in ("", "HEAD") or bool(_COMMIT.match(base.lower()))


def _lines(names: Sequence[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def run(
    argv: Sequence[str], stdin: bytes = b"", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run git, with `variables` of its own."""
    env = {**_environment(), **(variables or {})}
    try:
        return subprocess.run(argv, input=stdin, capture_output=True, env=env, timeout=_LIMIT_S)
    except FileNotFoundError:
        raise InputError("there is no `git` on this machine, and revisions are resolved by it") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"`{plain(' '.join(argv), 100)}` did not end within {_LIMIT_S} s") from None


def _environment() -> dict[str, str]:
    """No variable may point git elsewhere, no replacement ref may stand in for an object, nothing may ask or lock."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    quiet = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    return {**kept, **quiet}


def top_of(folder: Path) -> Path:
    """The top of the working tree that the folder is in, where git would find it; the folder itself, if in none."""
    here = Path(os.path.realpath(folder))
    top = next((above for above in (here, *here.parents) if os.path.lexists(above / ".git")), here)
    return folder if top == here else top


def is_bare(folder: Path) -> bool:
    """Whether the folder is of a repository without a working tree, or of git's own folder in one with it."""
    return run(["git", "-C", str(folder), "rev-parse", "--is-inside-git-dir"]).stdout.strip() == b"true"


def ignored(folder: Path) -> set[str]:
    """What git ignores below the folder, relative to it: files, and whole folders; nothing where git has no say."""
    listed = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"]
    names = run(["git", "-C", str(folder), *listed]).stdout.split(b"\0")
    return {os.fsdecode(name).rstrip("/") for name in names} - {""}


def title_of(commit_object: bytes) -> str:
    """The first line of the commit's message."""
    message = commit_object.partition(b"\n\n")[2]
    return plain(message.strip().partition(b"\n")[0].decode(errors="replace"))


def _not_a_repository(where: Path, said: str) -> str:
    if "dubious ownership" in said:
        return f"{where} belongs to another user: git reads it after `git config --global --add safe.directory {where}`"
    if "not a git repository" in said:
        return f"{where} is not inside a git repository"
    return f"{where}: git cannot open the repository: {plain(said, 300)}"


def _refuse_dangerous(files: Mapping[str, Entry], folders: Sequence[str]) -> None:
    """Paths that could be written outside of the tree, or over git's own files."""
    for path in (*files, *folders):
        parts = path.split("/")
        if any(_RESERVED.match(part) for part in parts):
            raise InputError(f"the commit has the path {plain(path)!r}, which cannot be written safely")
        if any("/".join(parts[:n]) in files for n in range(1, len(parts))):
            raise InputError(f"the commit has {plain(path)!r} below a file or a link")


def _refuse_inexact(tree: str, files: Mapping[str, Entry], submodules: Sequence[Submodule]) -> None:
    """What git can store and a directory cannot: empty directories, modes of old (git shows 100664 as 100644)."""
    manifest = {path: (entry.mode, entry.blob) for path, entry in files.items()}
    if on_disk.wrong_hash(manifest, tree, submodules):
        raise InputError(
            f"the tree {tree} holds empty directories or file modes that no directory can give back exactly"
        )
