"""Reports to be shared: host names, addresses, users, ports, homes and machine ids are taken out of their text."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.config.inventory import Pod
from orchestrator.errors import IntegrityError
from orchestrator.results import Result, read_events
from orchestrator.shared.files import read_json
from orchestrator.shared.user import user as user_here

# Words that name nobody, and stand in other meanings everywhere.
_COMMON = frozenset("admin cpu cuda gpu local localhost nobody none root runner test tests ubuntu user".split())
_LEAST_NAME = 2
# Not `triton@cuda:sm_90`, which is a route.
_ACCOUNT = re.compile(r"(?<![\w.@-])[\w.\\-]+@(?!(?:cuda|cpu)\b)(?=[\w\[])[\w.\\-]+(?::\d{2,5}\b)?")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]\d|\w)(?P<port>:\d{2,5}\b)?")
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-fA-F:]*::?[0-9a-fA-F:]*[0-9a-fA-F](?:%\w+)?(?![\w:])")
_HOME = re.compile(r"(?<![\w.~-])(?:/home/|/Users/)[^/\s:;,|'\"()\[\]<>]+|(?<![\w.~-])/root(?![\w.-])")
_PORT = re.compile(r"(?i)\b(ports?[ =:]+)\d{2,5}\b")
_MACHINE_ID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|SHA256:[A-Za-z0-9+/]{43}=?")


@dataclass(frozen=True)
class Hosts:
    """What is to be taken out; `names` maps a known text to what stands for it. Unless `active`, nothing is."""

    names: Mapping[str, str] = field(default_factory=dict)
    active: bool = True

    def text(self, text: str) -> str:
        """`text`, which may be Markdown, without what tells whose machines these are."""
        if not self.active:
            return text
        text = _MACHINE_ID.sub("[id]", text)
        text = _HOME.sub("~", text)
        text = _ACCOUNT.sub(lambda m: "[user]@[host]" + (":[port]" if ":" in m[0] else ""), text)
        text = _IPV4.sub(_address, text)
        text = _IPV6.sub(_address, text)
        for name in sorted(self.names, key=len, reverse=True):
            text = re.sub(_as_word(name), self.names[name], text)
        text = re.sub(r"(\[(?:host|ip)\]):\d{2,5}\b", r"\1:[port]", text)
        return _PORT.sub(r"\1[port]", text)

    def clean(self, value: Any) -> Any:
        """A JSON value with each text in it as `text` makes it; keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.clean(inner) for key, inner in value.items()}
        return [self.clean(inner) for inner in value] if isinstance(value, list) else value

    def result(self, result: Result) -> Result:
        """The result as it may be shared."""
        return Result.model_validate(self.clean(result.model_dump()))


def known_to(directory: Path, pods: Iterable[Pod]) -> Hosts:
    """What the run in `directory`, the inventory and this laptop know of names."""
    plan = read_json(directory / "plan.json")
    environment: Mapping[str, Any] = plan["facts"] if isinstance(plan.get("facts"), dict) else {}
    user, _, laptop = str(plan.get("who", "")).rpartition("@")
    hosts = [environment.get("hostname"), laptop, socket.gethostname(), *_hosts_in_journal(directory)]
    users: list[object] = [user, user_here()]
    names: dict[str, str] = {}
    for pod in pods:
        hosts += [pod.host, pod.ssh_config]
        users.append(pod.user)
        names.update({str(pod.port): "[port]"} if pod.port and pod.port >= 1024 else {})
    names.update({str(name): "[user]" for name in users if _is_name(name)})
    names.update({str(name): "[host]" for name in hosts if _is_name(name)})
    if environment.get("boot_id"):
        names[str(environment["boot_id"])] = "[id]"
    homes = {str(Path.home()), str(plan.get("workdir", "")).removesuffix("/.nsa-pod")}
    names.update({home: "~" for home in homes if home.count("/") >= 1 and len(home) > len("/") and home != "~"})
    return Hosts(names)


def _hosts_in_journal(directory: Path) -> list[object]:
    try:
        return [event.get("host") for event in read_events(directory)]
    except IntegrityError:  # the verdict says so; here it only means that no name can be had from it
        return []


def _is_name(name: object) -> bool:
    return isinstance(name, str) and len(name) >= _LEAST_NAME and name.lower() not in _COMMON


def _as_word(name: str) -> str:
    """A pattern for `name` as a whole word, also where Markdown has its special characters escaped."""
    letters = "".join(("" if c.isalnum() else r"\\?") + re.escape(c) for c in name)
    return rf"(?<![\w.-]){letters}(?![\w-]|\.\w)" if name[0] != "/" else rf"{letters}(?![\w-])"


def _address(found: re.Match[str]) -> str:
    """`[ip]` for what is an address; a time, a test id and the like stay."""
    port = found.groupdict().get("port") or ""
    text = found[0].removesuffix(port)
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return found[0]
    is_meant = "." in text or any(c.isdigit() for c in text)
    return "[ip]" + (":[port]" if port else "") if is_meant else found[0]
