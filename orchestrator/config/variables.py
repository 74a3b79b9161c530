"""The `env` of the inventory and of runbooks: values that a plan may hold, and secret ones that it only names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Tag,
    model_validator,
)

from orchestrator.config.words import Text, matching
from orchestrator.errors import InputError
from orchestrator.shared.redaction import MIN_LENGTH, looks_secret

VariableName = Annotated[str, matching("[A-Za-z_][A-Za-z0-9_]*", "a variable's name (letters, digits and _)")]

# What each stage is given, whatever a plan says: where it writes, and which run it is of.
_GivenName = Annotated[
    VariableName,
    matching(
        "(?!NSA_POD_(ARTIFACTS|RUN)$)[A-Za-z_][A-Za-z0-9_]*",
        "another name than NSA_POD_ARTIFACTS and NSA_POD_RUN, which each stage is given by nsa-pod",
    ),
]


class Described(BaseModel):
    """A variable that is more than its text: {secret: TEXT}, {value: TEXT, secret: false}, {from_env: NAME}.

    `from_env` takes the value of the laptop's own variable NAME at the launch; secret unless `secret: false`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    value: Text | None = None
    from_env: VariableName | None = None
    secret: bool | Text = True

    @model_validator(mode="after")
    def _one_source(self) -> Described:
        given = [self.value is not None, self.from_env is not None, isinstance(self.secret, str)]
        if sum(given) != 1:
            raise ValueError("expected {secret: TEXT}, {value: TEXT, secret: true or false} or {from_env: NAME}")
        return self


def _kind(value: object) -> str:
    return "described" if isinstance(value, (dict, Described)) else "text"


EnvMap = dict[
    _GivenName, Annotated[Annotated[Text, Tag("text")] | Annotated[Described, Tag("described")], Discriminator(_kind)]
]


def texts_of(value: str | Described) -> list[str]:
    """What is written there of the value itself."""
    texts = [value] if isinstance(value, str) else [value.value, value.secret]
    return [text for text in texts if isinstance(text, str)]


def taken_from_here(env: Mapping[str, str | Described]) -> list[str]:
    """The laptop's own variables whose values `env` takes."""
    return sorted({value.from_env for value in env.values() if isinstance(value, Described) and value.from_env})


@dataclass(frozen=True)
class Variables:
    """Variables with their values: `plain` may be written down, `secret` must not be."""

    plain: Mapping[str, str] = field(default_factory=dict)
    secret: Mapping[str, str] = field(default_factory=dict)


def values_of(env: Mapping[str, str | Described], where: str, environ: Mapping[str, str]) -> Variables:
    """The values of `env`; `environ` is the laptop's environment, `where` begins the sentences of InputError."""
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, described in env.items():
        value, is_secret, said = _read(name, described, where, environ)
        if is_secret and len(value) < MIN_LENGTH:
            hint = "" if said else ": by its name it is one; if it is none, write {value: TEXT, secret: false}"
            raise InputError(
                f"{where}: {name}: a secret of fewer than {MIN_LENGTH} characters cannot be kept out of logs{hint}"
            )
        (secret if is_secret else plain)[name] = value
    return Variables(plain, secret)


def _read(name: str, described: str | Described, where: str, environ: Mapping[str, str]) -> tuple[str, bool, bool]:
    """(value, whether it is secret, whether somebody said so); an empty value is no secret."""
    if isinstance(described, str):
        return described, looks_secret(name, described), False
    if isinstance(described.secret, str):
        return described.secret, bool(described.secret), True
    value = described.value
    if described.from_env is not None:
        value = environ.get(described.from_env)
        if value is None:
            raise InputError(f"{where}: {name}: from_env: the variable {described.from_env} is not set here")
    assert value is not None  # the model says so
    return value, described.secret and bool(value), True
