"""pods.yaml -> Pod. The inventory says where a pod is and what it promises, never how it is used."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from orchestrator.config.variables import EnvMap, texts_of
from orchestrator.config.words import NAME, Keeps, Name, Size, matching
from orchestrator.config.yamlfile import Location, document, named_file, place, read
from orchestrator.errors import InputError
from orchestrator.shared.text import alternatives
from orchestrator.text import listing, nearest, plain

LOCAL = "local"
FILENAME = "pods.yaml"
_DEFAULT_VARIABLE = "NSA_POD_DEFAULT"
# What one run may put on the laptop's disk, unless the inventory says otherwise.
MAX_BYTES = 8 * 2**30
MAX_FILES = 20_000
_OF_SSH = ("host", "ssh_config", "port", "user", "identity_file", "host_key")
_ADDRESS = re.compile(r"(?!-)[^\s\"'\\;|&$`<>()]+")
_AROUND = {
    r"(\w+://).*": "leave {} out",
    r"(\[).*": "leave the brackets out",
    r"(.+)@.*": "{} belongs under 'user'",
    r"[^:]+:(\d+)": "{} belongs under 'port'",
}


def address(value: str) -> str:
    """A host's or a user's name, which SSH and shells take for nothing else. ValueError if it is none."""
    if not (_ADDRESS.fullmatch(value) and value.isprintable()):
        raise ValueError(f"expected a plain name or address, got {plain(repr(value))}")
    return value


def _host(value: str) -> str:
    """An address without what is written around it elsewhere: `ssh://user@host:port`, `[2001:db8::1]`."""
    for pattern, advice in _AROUND.items():
        found = re.fullmatch(pattern, value)
        if found:
            raise ValueError(f"expected a name or address alone, got {value!r}: {advice.format(found[1])}")
    return value


def _odd(value: str) -> str | None:
    """What is wrong with a value that could end a line or a word of whatever it is written into."""
    if value.strip() and value.isprintable() and not set(value) & {'"', "'"}:
        return None
    return f"expected text without quotes, line breaks and control characters, got {plain(repr(value))}"


def _of_own_home(value: str) -> str:
    """A path whose `~`, if it has one, is the home of whoever logs in: no other's is looked up on a pod."""
    if re.match("~[^/]", value):
        raise ValueError(f"expected an absolute path or one under ~/, got {value!r}: write that user's home out")
    return value


def _of_workdir(value: str) -> str | None:
    """A relative path would be one of the home's, which nobody who reads it knows."""
    return None if re.match("/|~/.", value) else f"expected an absolute path or one under ~/, got {value!r}"


Address = Annotated[str, AfterValidator(address)]
Value = Annotated[str, Keeps(_odd, {"pattern": "^(?=.*\\S)[^\"'\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]+$"})]
PodPath = Annotated[Value, AfterValidator(_of_own_home)]
Workdir = Annotated[PodPath, Keeps(_of_workdir)]
HostKey = Annotated[str, matching(r"SHA256:[A-Za-z0-9+/]{43}=?", "SHA256:... as ssh-keygen -l prints it")]


class Pod(BaseModel):
    """One pod of the inventory.

    `gpu` and `driver` are promises that the probe is held against; `host_key` is the pin itself ("SHA256:...");
    `cost_per_hour` is in the currency of whoever wrote the inventory; `max_bytes` and `max_files` are what one run may
    put on the laptop's disk; `max_disk` is what the workdir may take on the pod's, where it is tidied at each launch.
    `name` and `inventory`, the file that it stands in, are not written there: two files may have a pod of one name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: SkipJsonSchema[str] = ""
    inventory: SkipJsonSchema[str] = Field(default="", exclude=True)
    transport: Literal["ssh", "local"] = "ssh"
    host: Annotated[Address, AfterValidator(_host)] | None = None
    ssh_config: Value | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    user: Address | None = None
    identity_file: Value | None = None
    host_key: HostKey | None = None
    gpu: Value | None = None
    driver: Value | None = None
    cost_per_hour: Annotated[float, Field(ge=0)] | None = None
    environment: Value | None = None
    runbook: Value | None = None
    max_bytes: Size = MAX_BYTES
    max_files: Annotated[int, Field(gt=0)] = MAX_FILES
    max_disk: Size | None = None
    workdir: Workdir = "~/.nsa-pod"
    python: PodPath | None = None
    env: EnvMap = {}

    @field_validator("env")
    @classmethod
    def _of_one_line(cls, env: EnvMap) -> EnvMap:
        broken = next((name for name, value in env.items() if not all(t.isprintable() for t in texts_of(value))), None)
        if broken:
            raise ValueError(
                f"{broken}: expected text without line breaks and control characters: {{from_env: NAME}} may have them"
            )
        return env

    @model_validator(mode="after")
    def _one_address(self) -> Pod:
        if self.transport == "ssh" and (self.host is None) == (self.ssh_config is None):
            raise ValueError("expected exactly one of 'host' and 'ssh_config' (or 'transport: local')")
        odd = [key for key in _OF_SSH if getattr(self, key) is not None] if self.transport == "local" else []
        if odd:
            raise ValueError(f"'transport: local' is this machine: expected no {alternatives(map(repr, odd))}")
        return self


def is_pod_name(text: str) -> bool:
    """Whether it can become a directory, a host alias and a host-key alias."""
    return re.fullmatch(NAME, text) is not None


class PodsFile(BaseModel):
    """pods.yaml as it is written; `default` is the pod of a command that names none."""

    model_config = ConfigDict(extra="forbid", strict=True)

    pods: dict[Name, Pod]
    default: str | None = None

    @field_validator("pods")
    @classmethod
    def _named_by_their_key(cls, pods: dict[str, Pod]) -> dict[str, Pod]:
        own = {key: next(iter({"name", "inventory"} & pod.model_fields_set), None) for key, pod in pods.items()}
        wrong = next((key for key, word in own.items() if word), None)
        if wrong:
            raise ValueError(f"pod {wrong!r}: expected no {own[wrong]!r} beside its key")
        return {key: pod.model_copy(update={"name": key}) for key, pod in pods.items()}

    @field_validator("default")
    @classmethod
    def _one_of_the_pods(cls, default: str | None, info: ValidationInfo) -> str | None:
        pods = info.data.get("pods")  # absent where they are wrong themselves
        if default is not None and pods is not None and default not in pods:
            raise ValueError(f"unknown pod {default!r}{nearest(default, pods)}")
        return default


@dataclass(frozen=True)
class Inventory:
    """All pods by name, and the file they came from (None: the built-in `local`).

    `sha256` is of the file's content; `named` tells a file that a person named from one that was only found.
    """

    pods: Mapping[str, Pod]
    path: Path | None = None
    lines: Mapping[Location, int] = field(default_factory=dict)
    default: str | None = None
    sha256: str = ""
    named: bool = True

    def place(self, *at: str) -> str:
        """`file:line: key '...'` of a part of the file."""
        return place(str(self.path or "the built-in inventory"), at, self.lines, {})

    def pod(self, name: str, said_by: str = "") -> Pod:
        """The pod called `name`; InputError names the nearest ones, and who has `said` so."""
        if name in self.pods:
            return self.pods[name]
        where = self.path or "the built-in inventory"
        raise InputError(f"unknown pod {name!r}{said_by} in {where}{nearest(name, self.pods)}")

    def chosen(self, name: str | None) -> Pod:
        """The pod called `name`; without a name that of $NSA_POD_DEFAULT, else the inventory's `default`."""
        variable = os.environ.get(_DEFAULT_VARIABLE)
        if variable and not name:
            return self.pod(variable, f" (of ${_DEFAULT_VARIABLE})")
        named = name or self.default
        if named:
            return self.pod(named)
        raise InputError(
            f"no pod was named: expected --pod NAME ({listing(self.pods)}), `default: NAME` in "
            f"{self.path or FILENAME}, or ${_DEFAULT_VARIABLE}"
        )


def find(explicit: str | None) -> Path | None:
    """The inventory file: `--inventory`, else $NSA_POD_INVENTORY, else the nearest pods.yaml upward, else None."""
    here = Path.cwd()
    nearest_one = next((str(d / FILENAME) for d in (here, *here.parents) if os.path.lexists(d / FILENAME)), None)
    named = _named(explicit) or nearest_one
    return named_file(named, "inventory", "a pods.yaml") if named else None


def _named(explicit: str | None) -> str | None:
    return explicit or os.environ.get("NSA_POD_INVENTORY")


def load_inventory(explicit: str | None = None) -> Inventory:
    """Read the inventory; without any file there is one pod, `local`."""
    path = find(explicit)
    if path is None:
        return Inventory({LOCAL: Pod(name=LOCAL, transport="local")})
    text = read(path)
    found = document(text, str(path), PodsFile)
    own = os.path.realpath(path)
    pods = {name: pod.model_copy(update={"inventory": own}) for name, pod in found.value.pods.items()}
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Inventory(pods, path, found.lines, found.value.default, digest, bool(_named(explicit)))
