"""Git objects in packs that the runs of a pod share: what an earlier run has brought is not written again.

<workdir>/objects/pack/pack-<sha1>.{pack,idx}, which each run's .git names as its alternates.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, Dict, Iterable, Iterator, List, NamedTuple, Set, Tuple, Union

from orchestrator.shared.tree import SHA1_OPTIONS, object_digest, object_name

_KINDS = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_NAME = 20  # bytes of a SHA-1
_PIECE = 1 << 16
_COMPRESSED_BYTES = 1 << 16  # what is larger is stored as it is: a run waits for this
_IDX_HEAD = b"\377tOc" + struct.pack(">I", 2)
_FANOUT = 256 * 4
_LARGE = 1 << 31  # an offset from here on stands in a table of its own


class Object(NamedTuple):
    """An object: its kind, and its content or the file that has it."""

    kind: str
    content: Union[bytes, Path]


class _Entry(NamedTuple):
    name: bytes
    offset: int
    crc: int


def add(store: Path, objects: Iterable[Object], blobs: Iterable[Tuple[str, Path]]) -> None:
    """Bring `objects`, and `blobs` by their names, into the store, unless they are there."""
    folder = store / "pack"
    folder.mkdir(parents=True, exist_ok=True)
    known = _names(folder)
    made = {_name(o): o for o in objects}
    wanted: List[Object] = [o for name, o in made.items() if name not in known]
    files: Dict[bytes, Path] = {bytes.fromhex(name): path for name, path in blobs}
    wanted += [Object("blob", path) for name, path in files.items() if name not in known]
    if wanted:
        _write(folder, wanted)


def _name(item: Object) -> bytes:
    assert isinstance(item.content, bytes)
    return bytes.fromhex(object_name(item.kind, item.content))


def _names(folder: Path) -> Set[bytes]:
    """The names of all objects in the folder's packs."""
    found: Set[bytes] = set()
    for path in folder.glob("*.idx"):
        if not path.with_suffix(".pack").is_file():
            continue
        data = path.read_bytes()
        start = len(_IDX_HEAD) + _FANOUT
        if data.startswith(_IDX_HEAD) and len(data) > start:
            (count,) = struct.unpack(">I", data[start - 4 : start])
            found.update(data[at : at + _NAME] for at in range(start, start + count * _NAME, _NAME))
    return found


def _write(folder: Path, objects: List[Object]) -> None:
    aside = folder / f"tmp_{os.getpid()}"
    with aside.open("wb") as f:
        pack = _Pack(f, len(objects))
        entries = sorted(pack.put(item) for item in objects)
        digest = pack.end()
    final = folder / f"pack-{digest.hex()}.pack"
    aside.replace(final)
    aside.write_bytes(_index(entries, digest))
    aside.replace(final.with_suffix(".idx"))  # last: git looks for these


class _Pack:
    """A pack as it is written (gitformat-pack(5))."""

    def __init__(self, f: BinaryIO, count: int) -> None:
        self._f = f
        self._digest = hashlib.sha1(**SHA1_OPTIONS)
        self._offset = self._crc = 0
        self._raw(b"PACK" + struct.pack(">II", 2, count))

    def put(self, item: Object) -> _Entry:
        """The name is that of the content that was read, whatever was expected."""
        offset, self._crc = self._offset, 0
        if isinstance(item.content, bytes):
            name = self._body(item.kind, len(item.content), iter([item.content]))
        elif item.content.is_symlink():
            link = os.fsencode(os.readlink(item.content))
            name = self._body(item.kind, len(link), iter([link]))
        else:
            with item.content.open("rb") as f:
                size = os.fstat(f.fileno()).st_size
                name = self._body(item.kind, size, iter(lambda: f.read(_PIECE), b""))
        return _Entry(name, offset, self._crc)

    def end(self) -> bytes:
        digest = self._digest.digest()
        self._f.write(digest)
        return digest

    def _body(self, kind: str, size: int, pieces: Iterator[bytes]) -> bytes:
        self._raw(_size_and_kind(_KINDS[kind], size))
        name = object_digest(kind, size)
        deflate = zlib.compressobj(1 if size <= _COMPRESSED_BYTES else 0)
        for piece in pieces:
            name.update(piece)
            self._raw(deflate.compress(piece))
        self._raw(deflate.flush())
        return name.digest()

    def _raw(self, data: bytes) -> None:
        self._f.write(data)
        self._digest.update(data)
        self._crc = zlib.crc32(data, self._crc)
        self._offset += len(data)


def _size_and_kind(kind: int, size: int) -> bytes:
    """Four bits of the size beside the kind, then seven a byte, the lowest first."""
    found = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        found[-1] |= 128
        found.append(size & 127)
        size >>= 7
    return bytes(found)


def _index(entries: List[_Entry], pack: bytes) -> bytes:
    """Version 2: fan-out, names, checksums, offsets; entries are sorted."""
    counts = [0] * 256
    for entry in entries:
        counts[entry.name[0]] += 1
    fanout = [sum(counts[: first + 1]) for first in range(256)]
    large = [entry.offset for entry in entries if entry.offset >= _LARGE]
    places = {offset: _LARGE | n for n, offset in enumerate(large)}
    content = b"".join(
        [
            _IDX_HEAD,
            struct.pack(">256I", *fanout),
            *(entry.name for entry in entries),
            *(struct.pack(">I", entry.crc) for entry in entries),
            *(struct.pack(">I", places.get(entry.offset, entry.offset)) for entry in entries),
            struct.pack(f">{len(large)}Q", *large),
            pack,
        ]
    )
    return content + hashlib.sha1(content, **SHA1_OPTIONS).digest()
