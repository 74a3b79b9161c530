"""How an argv travels through a login shell that is not ours, and how its output is told from the shell's own noise."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.errors import InputError
from orchestrator.text import plain

# $0 is a token that nobody else can print: what a login script says before it is not the command's output. The shell
# stays as the leader of the process group, so that its pid names the group and a signal becomes an exit code.
_START = 'echo "$0"; echo "$0 $$" >&2; "$@"; exit $?'
# Environment values come on stdin, where `ps` does not show them. A connection that breaks here ends the input early:
# without the closing token nothing is run.
_READ_ENV = """\
e=; while IFS= read -r l; do [ "$l" = "$0" ] && break; e="$e$l
"; done; [ "$l" = "$0" ] || exit 126
eval "$e"; unset e l
"""
# The group gets two seconds between TERM and KILL. (dash knows a group only as `kill -s NAME -- -PID`.)
_END_GROUP = """\
kill -s TERM -- "-$1" || exit 1
for i in 1 2 3 4 5 6 7 8 9 10; do kill -s 0 -- "-$1" 2>/dev/null || exit 0; sleep 0.2; done
kill -s KILL -- "-$1" 2>/dev/null; exit 0"""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class RemoteCommand:
    """One command for a remote shell: `line` to be executed, `preamble` to be written to stdin before any input."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    token: str = field(default_factory=lambda: f"nsa-pod:{secrets.token_hex(8)}")

    @property
    def line(self) -> str:
        """The command line, quoted for any POSIX-like login shell."""
        script = (_READ_ENV if self.env else "") + _START
        return f"exec sh -c {shlex.quote(script)} {self.token} {shlex.join(self.argv)}"

    @property
    def preamble(self) -> bytes:
        """The environment as the script reads it."""
        if not self.env:
            return b""
        wrong = [name for name, value in self.env.items() if not _NAME.match(name) or "\0" in value]
        if wrong:
            raise InputError(
                f"{plain(wrong[0])!r} cannot be an environment variable: expected a name of letters, digits, _"
            )
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.env.items())
        return f"{exports}{self.token}\n".encode()

    def started(self, stderr: bytes) -> int | None:
        """The pid of the command's process group, once its shell has said it."""
        found = re.search(rb"^%s (\d+)\n" % self.token.encode(), stderr, re.MULTILINE)
        return int(found[1]) if found else None

    def clean(self, output: bytes) -> bytes:
        """What the command itself wrote: `output` after the line with the token (all of it if there is none)."""
        _, token, rest = output.partition(self.token.encode())
        return rest.partition(b"\n")[2] if token else output


def end_group(group: int) -> RemoteCommand:
    """The command that ends a process group: SIGTERM, two seconds, SIGKILL."""
    return RemoteCommand(["sh", "-c", _END_GROUP, "sh", str(group)])
