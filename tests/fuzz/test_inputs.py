"""What a person writes: the inventory, runbooks, ssh_config aliases. Exit code 2 and a sentence, or it is valid."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from orchestrator.config.inventory import Pod, load_inventory
from orchestrator.config.runbook import find_runbook
from orchestrator.errors import InputError
from orchestrator.plan.plan import Capabilities, Place, Tree, Work, make_plan, read_plan, to_json
from orchestrator.shared.plan import RunbookOrigin
from orchestrator.transports.ssh.endpoint import endpoint_of
from orchestrator.transports.ssh.sshconfig import render, write
from tests.support.fuzz.mutate import as_json, as_yaml, damaged, documents
from tests.support.fuzz.run import amounts, command, fuzz, sentence_or

INVENTORY = {
    "pods": {
        "local": {"transport": "local"},
        "pi-4090": {
            "host": "203.0.113.10", "port": 10645, "user": "root", "identity_file": "~/.ssh/prime",
            "host_key": "SHA256:" + "A" * 43, "gpu": "RTX 4090", "driver": "550.163.01", "cost_per_hour": 0.4,
            "environment": "torch28", "runbook": "nsa-validate", "workdir": "~/.nsa-pod", "python": "/usr/bin/python3",
            "env": {"HTTPS_PROXY": "http://p", "N": 1}, "max_bytes": "20G", "max_files": 10,
        },
        "alias": {"ssh_config": "my-alias"},
    }
}  # fmt: skip
RUNBOOK = {
    "name": "r",
    "requires": ["cuda"],
    "environment": {"requires": ["torch"], "optional": ["flash-attn"], "extra": ["pytest", "numpy<2.3"]},
    "env": {"PYTHONPATH": "."},
    "limits": {"wall": 3600, "silence": 600},
    "stages": [
        {"name": "a", "run": ["python", "x.py"], "expect": {"artifacts": [{"path": "a.txt", "from": "stdout"}]}},
        {
            "name": "b", "run": ["python", "-m", "pytest", "-q", "t.py"], "env": {"A": "1"}, "paths": ["t.py"],
            "needs": ["a"], "when": ["cuda", "sm>=80"], "required": False, "limits": {"wall": 30, "log_bytes": 100},
            "expect": {
                "tests": {"min_passed": 2, "allow_skips": ["slow.*"], "must_pass": ["t::a"]},
                "routes": {"selected": "triton"},
                "artifacts": [{
                    "path": "t.csv", "kind": "csv", "columns": ["S"], "min_rows": 4,
                    "checks": [{"finite": "all"}, {"column": "p", "max": 100}, {"equal": ["a", "b"]},
                               {"sum": ["x", "y"], "near": 100, "within": 2}],
                }],
            },
        },
    ],
}  # fmt: skip
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)
TREE = Tree("c" * 40, b"", "7" * 40, [], False, frozenset({"t.py", "x.py"}))


@amounts(120, 3000)
def test_inventories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, amount: int) -> None:
    monkeypatch.setenv("NSA_POD_HOME", str(tmp_path))
    file = tmp_path / "pods.yaml"

    def one(content: bytes) -> None:
        file.write_bytes(content)
        said = command("pods", "--json", "--inventory", str(file))
        assert said.code in (0, 2)
        if said.code == 2:
            assert str(file) in json.loads(said.out)["error"]
            return
        assert command("pods", "--inventory", str(file)).code == 0
        for pod in load_inventory(str(file)).pods.values():
            if pod.host:
                _check_ssh_config(pod, tmp_path)

    fuzz(amount, one, st.one_of(documents(INVENTORY, as_yaml), documents(INVENTORY)))


def _check_ssh_config(pod: Pod, folder: Path) -> None:
    """What ssh will read holds the lines that were meant, and no others."""
    endpoint = sentence_or(lambda: endpoint_of(pod))
    if isinstance(endpoint, InputError):
        return
    rendered = render(pod, endpoint, path=folder / "c", known_hosts=folder / "k", control=folder / "s")
    (folder / "ssh_config").write_text(rendered)
    assert rendered.count("\n  ProxyCommand ") == 0 and rendered.count("\nHost ") == 0
    assert rendered.count("\n") == rendered.count("\n  ") + 1


@amounts(120, 3000)
def test_runbooks(tmp_path: Path, amount: int) -> None:
    file = tmp_path / "r.yaml"
    pod = Pod(name="p", transport="local")

    def one(content: bytes) -> None:
        file.write_bytes(content)
        found = sentence_or(lambda: find_runbook(str(file), tmp_path))
        if isinstance(found, Exception):
            assert isinstance(found, InputError) and str(file) in str(found)
            return
        have = Capabilities(sm=89, packages=frozenset())
        origin = RunbookOrigin(name="r", source="file", path="r.yaml", sha256=found.sha256, committed=False)
        plan = make_plan(Work(found.runbook, origin, pod, TREE), Place({}, have, {}, "/w"))
        text = to_json(plan)
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert read_plan(text, "plan.json") == plan

    fuzz(amount, one, st.one_of(documents(RUNBOOK, as_yaml), documents(RUNBOOK)))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(LAUGHS, id="billion laughs"),
        pytest.param("stages: &a [*a]", id="an alias of itself"),
        pytest.param("a: &a {b: &b [*a, *b]}", id="aliases of each other"),
        pytest.param("[" * 3_000, id="deep"),
        pytest.param("{a: " * 3_000, id="deep mappings"),
        pytest.param("- " * 3_000, id="deep lists"),
        pytest.param("a: 1" + "0" * 10_000, id="a long number"),
        pytest.param("".join(f"k{n}: {n}\n" for n in range(2_000)), id="many keys"),
        pytest.param("x: " + "y" * 1_000_000, id="a long text"),
        pytest.param("x: " + "y" * 2_000_000, id="too long a text"),
        *(
            pytest.param(f"a: {text}", id=text)
            for text in (
                "!!int ''", "!!int x", "!!float x", "!!bool x", "!!timestamp x", "!!binary '='", "!!null x",
                "!!set [a]", "!!omap a", "!!pairs [a]", "!!python/object/apply:os.system [x]", "2026-99-99", "0b",
                "1:99:99", "*b",
                '"\\ud800"', '"\\0"', "{[a]: b}", "{? {a: b} : c}", "<<: 1", "&a !!seq {}",
            )
        ),
    ],
)  # fmt: skip
def test_yaml_that_is_made_to_hurt(tmp_path: Path, text: str) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(text)
    assert command("pods", "--json", "--inventory", str(file)).code == 2
    assert isinstance(sentence_or(lambda: find_runbook(str(file), tmp_path)), InputError)


@pytest.mark.process
@amounts(60, 1000)
def test_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, amount: int) -> None:
    """Names of pods, runs, revisions and files, as a person may type them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NSA_POD_HOME", str(tmp_path / "home"))
    (tmp_path / "pods.yaml").write_text(yaml.safe_dump(INVENTORY))
    words = st.one_of(
        st.text(st.characters(exclude_characters="\0"), max_size=30),
        st.sampled_from(["", "..", "/", "-", "*", "x" * 5000]),
    )
    lines = st.sampled_from(
        [
            ["pods", "--json", "--inventory"],
            ["validate", "--json", "--dry-run", "--pod"],
            ["validate", "--json", "--dry-run", "--pod", "local", "--commit"],
            ["validate", "--json", "--dry-run", "--pod", "local", "--runbook"],
            ["validate", "--json", "--dry-run", "--pod", "local", "--repo"],
            ["report", "--json", "--"],
            ["report", "--json", "--artifacts"],
            ["runs", "--json", "--artifacts"],
            ["runs", "--json", "--repo"],
        ]
    )

    def one(given: tuple[list[str], str]) -> None:
        line, word = given
        said = command(*line, word.encode("utf-8", "replace").decode())
        assert said.code in (0, 2)
        if said.out and line[0] != "validate":
            json.loads(said.out)

    fuzz(amount, one, st.tuples(lines, words))


SSH_CONFIG = """\
Host my-alias
  HostName 203.0.113.10
  Port 2222
  User me
  IdentityFile ~/.ssh/id
  ProxyJump jump
Host jump
  HostName jump.example
  HostKeyAlias "a b"
"""


@pytest.mark.ssh
@amounts(25, 600)
def test_ssh_configurations(tmp_path: Path, amount: int) -> None:
    file = tmp_path / "config"

    def one(given: tuple[bytes, str]) -> None:
        content, alias = given
        file.write_bytes(content)
        sentence_or(lambda: endpoint_of(Pod.model_construct(name="p", ssh_config=alias), file))

    aliases = st.one_of(st.just("my-alias"), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
    words = st.sampled_from(
        'ProxyJump none 99999 -x ,, jump my-alias ${X} %h Match exec Include * ! \\ " a@b:c'.split()
    )
    lines = st.lists(st.tuples(st.integers(0, 9), words), max_size=4).map(_edited)
    fuzz(amount, one, st.tuples(st.one_of(lines.flatmap(damaged), damaged(SSH_CONFIG)), aliases))


def _edited(edits: list[tuple[int, str]]) -> str:
    lines = SSH_CONFIG.splitlines()
    for at, word in edits:
        lines[at % len(lines)] = f"{lines[at % len(lines)].rpartition(' ')[0]} {word}"
    return "\n".join(lines) + "\n"


@amounts(60, 1000)
def test_what_the_laptop_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, amount: int) -> None:
    """Launches and pins: files of our own, half written by a machine that lost its power."""
    from orchestrator.store import hostkeys, launches

    monkeypatch.setenv("NSA_POD_HOME", str(tmp_path))
    (tmp_path / "runs").mkdir()
    launch = {"run_id": "r", "pod": "p", "commit": "c", "repo": "/r", "directory": "/d"}
    pins = f"nsa-pod-p ssh-ed25519 {base64.b64encode(b'key').decode()}\nother ssh-rsa AAAA\n"

    def one(given: tuple[bytes, bytes]) -> None:
        (tmp_path / "runs" / "r.json").write_bytes(given[0])
        (tmp_path / "known_hosts").write_bytes(given[1])
        sentence_or(lambda: launches.launches(Pod(name="p", host="h")))
        sentence_or(lambda: launches.launch_of("r"))
        sentence_or(lambda: hostkeys.pinned(Pod(name="p", host="h", host_key="SHA256:" + "A" * 43)))

    fuzz(amount, one, st.tuples(documents(launch, as_json), damaged(pins)))


_LINES = st.sampled_from(
    [
        "ProxyCommand touch {canary}", "Match exec 'touch {canary}'", "LocalCommand touch {canary}",
        "Include {canary}", "ProxyJump x", "Host *", "KnownHostsCommand /usr/bin/touch {canary}",
    ]
)  # fmt: skip
_BREAKS = st.sampled_from(
    ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029", "\v", "\f", "\0", '"\n', "'\n", '"', "%", "`", "$(", "\t"]
)
_HOSTILE = st.tuples(st.sampled_from(["~/.ssh/k", "x", ""]), _BREAKS, st.sampled_from(["  ", ""]), _LINES, _BREAKS)
_KEYS = ["host", "user", "identity_file", "ssh_config", "workdir", "python", "gpu", "driver", "environment", "runbook",
         "host_key", "port", "name", "env"]  # fmt: skip


@pytest.mark.process
@amounts(80, 10000)
def test_no_value_runs_a_command_or_makes_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, amount: int) -> None:
    """Hostile text under any key: refused on load, or OpenSSH reads the configuration as it was meant; nothing runs."""
    monkeypatch.setenv("NSA_POD_HOME", str(tmp_path))
    file, canary = tmp_path / "pods.yaml", tmp_path / "canary"

    def one(example: tuple[str, str, tuple[str, ...]]) -> None:
        key, name, parts = example
        text = "".join(parts).replace("{canary}", str(canary))
        entry: dict[str, object] = {"host": "203.0.113.1", **({"env": {"A": text}} if key == "env" else {key: text})}
        if key == "ssh_config":
            del entry["host"]
        file.write_text(json.dumps({"pods": {name: entry}}))
        found = sentence_or(lambda: load_inventory(str(file)))
        if not isinstance(found, InputError):
            for pod in found.pods.values():
                sentence_or(lambda pod=pod: _written(pod, tmp_path))
        assert not canary.exists()

    names = st.one_of(st.just("p"), st.sampled_from(["p\nHost x", "*", "!p", "p q", "-oProxyCommand=x"]))
    fuzz(amount, one, st.tuples(st.sampled_from(_KEYS), names, _HOSTILE))


def _written(pod: Pod, folder: Path) -> None:
    """The pod's configuration as a connection would write it, and have OpenSSH read it."""
    endpoint = endpoint_of(pod)
    path = folder / "ssh_config"
    text = render(pod, endpoint, path=path, known_hosts=folder / "k", control=folder / "s")
    assert text.count("\n") == text.count("\n  ") + 1
    write(path, pod, text, endpoint)
