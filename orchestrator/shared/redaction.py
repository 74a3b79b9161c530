"""Secret values, found in text, streams and files wherever they stand, and replaced by their names.

A value is found as it is and as JSON, XML, URLs, Python and base64 write it; of an address with a password, the
password alone too; of several lines, each one; and of a value that was shortened to `begin...end`, as pytest does it,
both parts, and what is left between two ellipses where its line was shortened once more.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, BinaryIO
from urllib.parse import quote, quote_plus, unquote

# Shorter ones stand in too many places by chance: replacing them would make logs and evidence unreadable.
MIN_LENGTH = 6

_ALWAYS = re.compile(r"(?i)SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL")
_UNLESS_NUMBER = re.compile(r"(?i)(TOKEN|(?<![A-Z])KEY|(?:API|ACCESS|PRIVATE)KEY)(?![A-Z])")
_NUMBER = re.compile(r"(?i)[-+]?[\d.]+(e[-+]?\d+)?|true|false|yes|no|on|off|none")
_ADDRESS = re.compile(r"(?i)[a-z][a-z0-9+.-]*://([^/\s]+)@")
_LEAST_BARE_TOKEN = 20  # `https://TOKEN@host`; a mere user name is shorter
# Both of three bytes; of the first there may be more.
_ELLIPSES = {b"...": re.compile(rb"\.+"), "\u2026".encode(): re.compile("\u2026".encode())}
_ELLIPSIS_BYTES = 3
_ELLIPSIS_BEGUN = re.compile(rb"(?:\A|[^.])(\.{1,2}|\xe2\x80?)\Z")
_PIECE = 1 << 16


def looks_secret(name: str, value: str) -> bool:
    """Whether an environment variable is a credential by its name, or by an address with a password in its value."""
    if not value:
        return False
    named = _ALWAYS.search(name) or (_UNLESS_NUMBER.search(name) and not _NUMBER.fullmatch(value))
    return bool(named) or any(_is_credential(found[1]) for found in _ADDRESS.finditer(value))


class Redactor:
    """Knows secret values by their names; `values` are (name, value) pairs. Without any it changes nothing."""

    def __init__(self, values: Sequence[tuple[str, str]] = ()) -> None:
        self._forms: dict[bytes, str] = {}
        for name, value in values:
            for form in _forms(value):
                self._forms.setdefault(form, name)
        # All that a shortened value can have next to the ellipsis.
        self._parts = {form[i : i + MIN_LENGTH] for form in self._forms for i in range(len(form) - MIN_LENGTH + 1)}

    def __bool__(self) -> bool:
        return bool(self._forms)

    def stream(self) -> Stream:
        """For bytes that come in pieces."""
        return Stream(self._forms, self._parts)

    def text(self, text: str) -> str:
        """`text` without the values."""
        if not self._forms:
            return text
        data = text.encode("utf-8", "surrogatepass")
        if not any(form in data for form in self._forms) and not any(dots in data for dots in _ELLIPSES):
            return text
        stream = self.stream()
        return (stream.feed(data) + stream.end()).decode("utf-8", "surrogatepass")

    def clean(self, value: Any) -> Any:
        """A JSON value with every string in it, keys too, as `text` makes it."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.clean(key): self.clean(inner) for key, inner in value.items()}
        return [self.clean(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    def names_in(self, file: BinaryIO) -> list[str]:
        """Names of the values that the rest of `file` holds, sorted."""
        stream = self.stream()
        for _ in stream.copy(file):
            pass
        return sorted(stream.found)


class Stream:
    """Replaces values in a stream of bytes. What may be the beginning of one is held back until it is known."""

    def __init__(self, forms: Mapping[bytes, str], parts: set[bytes]) -> None:
        self._forms = forms
        self._parts = parts
        self._held = b""
        self._masked = 0  # so many bytes of what is held belong to a value whose name was given out already
        self.found: set[str] = set()

    def feed(self, piece: bytes) -> bytes:
        """What can be given out after `piece`; hardly more is held back than the longest form of a value."""
        if not self._forms:
            return piece
        data = self._held + piece
        return self._give(data, self._open_end(data))

    def end(self) -> bytes:
        """The rest, after which nothing more comes."""
        return self._give(self._held, len(self._held))

    def copy(self, file: BinaryIO) -> Iterator[bytes]:
        """The rest of `file` in pieces, without the values."""
        for piece in iter(lambda: file.read(_PIECE), b""):
            yield self.feed(piece)
        yield self.end()

    def _give(self, data: bytes, end: int) -> bytes:
        """The output for data[:end]; the rest is held."""
        out = []
        at = 0
        masked = self._masked
        for start, stop, name in self._found_in(data):
            if start >= end and start >= masked:  # seen again with what follows
                break
            self.found.add(name)
            if start >= masked:
                out += [data[max(at, masked) : start], b"***%s***" % name.encode()]
            at = masked = max(masked, stop)
        out.append(data[max(at, masked) : end])
        self._held, self._masked = data[end:], max(0, masked - end)
        return b"".join(out)

    def _found_in(self, data: bytes) -> list[tuple[int, int, str]]:
        """(start, end, name) of every place where a form stands, overlapping ones too, the longest first of equals."""
        found = []
        for form, name in self._forms.items():
            start = data.find(form)
            while start >= 0:
                found.append((start, start + len(form), name))
                start = data.find(form, start + 1)
        ellipses = list(_ellipses(data))
        found += (place for dots in ellipses for place in self._shortened_at(data, *dots))
        found += (
            (start, stop, name)
            for start, stop in zip((end for _, end in ellipses), (begin for begin, _ in ellipses[1:]))
            for form, name in self._forms.items()
            if MIN_LENGTH <= stop - start < len(form) and data[start:stop] in form
        )
        return sorted(found, key=lambda place: (place[0], -place[1]))

    def _shortened_at(self, data: bytes, start: int, end: int) -> Iterator[tuple[int, int, str]]:
        """As `_found_in`: the beginnings of forms before the ellipsis at data[start:end], and their ends after it."""
        before = data[max(0, start - MIN_LENGTH) : start] in self._parts
        after = data[end : end + MIN_LENGTH] in self._parts
        for form, name in self._forms.items() if before or after else ():
            if before:
                for size in range(MIN_LENGTH, min(len(form), start) + 1):
                    if data.endswith(form[:size], 0, start):
                        yield start - size, start, name
            if after:
                for size in range(MIN_LENGTH, len(form) + 1):
                    if data.startswith(form[-size:], end):
                        yield end, end + size, name

    def _open_end(self, data: bytes) -> int:
        """Where the first beginning of a form stands that the end of `data` cuts off; the length if there is none."""
        first = len(data)
        for form in self._forms:
            start = data.find(form[:1], max(0, len(data) - len(form) + 1))
            while 0 <= start < first:
                if form.startswith(data[start:]):
                    first = start
                start = data.find(form[:1], start + 1)
        return min(first, self._open_ellipsis(data))

    def _open_ellipsis(self, data: bytes) -> int:
        """As `_open_end`, of what the end of `data` leaves open before or after an ellipsis."""
        begun = _ELLIPSIS_BEGUN.search(data[-_ELLIPSIS_BYTES:])
        end = len(data) - (len(begun[1]) if begun else 0)
        last = max(data.rfind(dots, 0, end) for dots in _ELLIPSES)
        if last >= 0 and any(data[last + _ELLIPSIS_BYTES : end] in form for form in self._forms):
            return last
        sizes = (n for form in self._forms for n in range(MIN_LENGTH, len(form)) if data.endswith(form[:n], 0, end))
        return end - max(sizes, default=0) if begun else len(data)


def _ellipses(data: bytes) -> Iterator[tuple[int, int]]:
    for dots, whole in _ELLIPSES.items():
        start = data.find(dots)
        while start >= 0:
            end = whole.match(data, start).end()  # type: ignore[union-attr]
            yield start, end
            start = data.find(dots, end)


def _forms(value: str) -> set[bytes]:
    texts = {value, value.strip(), *(line.strip() for line in value.splitlines())}
    for found in _ADDRESS.finditer(value):
        if _is_credential(found[1]):
            password = found[1].partition(":")[2]
            texts.update([f"//{found[1]}@", found[1], unquote(found[1]), password, unquote(password)])
    written = {form for text in texts if len(text) >= MIN_LENGTH for form in _written(text)}
    return {form for form in written if len(form) >= MIN_LENGTH}


def _written(text: str) -> Iterator[bytes]:
    """How programs write `text` down."""
    raw = text.encode("utf-8", "surrogateescape")
    shown = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1], ascii(text)[1:-1])
    marked_up = (escape(text, quote=False), escape(text, quote=False).replace('"', "&quot;"), escape(text))
    yield raw
    in_urls = (quote(raw), quote(raw, safe=""), quote_plus(raw))
    for form in (*shown, repr(raw)[2:-1], *marked_up, *in_urls):
        yield form.encode("utf-8", "surrogateescape")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(raw).rstrip(b"=")


def _is_credential(userinfo: str) -> bool:
    return bool(userinfo.partition(":")[2]) or len(userinfo) >= _LEAST_BARE_TOKEN


NOTHING = Redactor()
