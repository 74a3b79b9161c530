"""An inventory that was merely found contacts nobody until its content was trusted, once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.config.inventory import Inventory, load_inventory
from orchestrator.errors import InputError, Untrusted
from orchestrator.store import trusted

SSH = """\
pods:
  gpu: {host: 203.0.113.1, user: root, identity_file: ~/.ssh/key, env: {TOKEN: {from_env: HF_TOKEN}}}
  local: {transport: local}
"""


@pytest.fixture
def folder(laptop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that somebody else has written, and the current directory."""
    found = tmp_path / "cloned"
    (found / "deep").mkdir(parents=True)
    monkeypatch.chdir(found / "deep")
    monkeypatch.delenv("NSA_POD_INVENTORY", raising=False)
    return found


def written(folder: Path, text: str) -> Inventory:
    (folder / "pods.yaml").write_text(text)
    return load_inventory()


def refused(inventory: Inventory, name: str) -> str:
    with pytest.raises(Untrusted) as error:
        trusted.require(inventory, inventory.pod(name), None)
    assert error.value.exit_code == 4
    return str(error.value)


def test_a_found_inventory_is_refused_with_what_it_asks_and_what_to_do(folder: Path) -> None:
    said = refused(written(folder, SSH), "gpu")
    assert "connect to root@203.0.113.1:22 with ~/.ssh/key, and send HF_TOKEN" in said
    assert f"nsa-pod trust --inventory {folder}/pods.yaml" in said


def test_trust_is_of_the_content_and_can_be_taken_back(folder: Path) -> None:
    found = written(folder, SSH)
    trusted.trust(found)
    trusted.require(found, found.pod("gpu"), None)
    trusted.require(load_inventory(), load_inventory().pod("gpu"), None)
    refused(written(folder, SSH.replace("203.0.113.1", "203.0.113.2")), "gpu")
    again = written(folder, SSH)
    trusted.require(again, again.pod("gpu"), None)
    assert trusted.revoke(again) and not trusted.revoke(again)
    refused(again, "gpu")


def test_a_person_is_asked_once_and_may_say_no(folder: Path) -> None:
    found, asked = written(folder, SSH), []

    def ask(question: str) -> bool:
        asked.append(question)
        return len(asked) > 1

    with pytest.raises(Untrusted):
        trusted.require(found, found.pod("gpu"), ask)
    for _ in range(3):
        trusted.require(found, found.pod("gpu"), ask)
    assert len(asked) == 2 and "root@203.0.113.1:22" in asked[0] and "Trust it?" in asked[0]


def test_a_named_inventory_needs_no_trust(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(folder, SSH)
    named = load_inventory("../pods.yaml")
    trusted.require(named, named.pod("gpu"), None)
    monkeypatch.setenv("NSA_POD_INVENTORY", str(folder / "pods.yaml"))
    trusted.require(load_inventory(), load_inventory().pod("gpu"), None)


def test_nor_does_one_in_the_users_own_configuration(laptop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NSA_POD_INVENTORY", raising=False)
    home = Path(os.environ["NSA_POD_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(home)
    found = written(home, SSH)
    trusted.require(found, found.pod("gpu"), None)


def test_this_machine_needs_none_unless_its_entry_commands_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = written(folder, SSH)
    trusted.require(found, found.pod("local"), None)
    for setting in ("python: /tmp/python", "workdir: /srv", "env: {A: b}"):
        said = refused(written(folder, f"pods: {{local: {{transport: local, {setting}}}}}\n"), "local")
        assert f"with its own {setting.partition(':')[0]}" in said
    monkeypatch.chdir("/")  # nothing lies above it, as above a temporary folder somebody's inventory may
    built_in = load_inventory()
    trusted.require(built_in, built_in.pod("local"), None)
    with pytest.raises(InputError, match=r"no pods\.yaml here"):
        trusted.trust(built_in)


def test_a_link_to_an_inventory_elsewhere_is_still_found_here(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(SSH)
    (folder / "pods.yaml").symlink_to(tmp_path / "other.yaml")
    refused(load_inventory(), "gpu")


def test_variables_that_leave_are_named_once_for_each_pod(folder: Path) -> None:
    found, said = written(folder, SSH), []
    pod = found.pod("gpu")
    for _ in range(2):
        trusted.tell_what_leaves(pod, [pod.env], said.append)
    assert said == ["HF_TOKEN of this machine's own environment goes to pod 'gpu', as from_env asks"]
    trusted.tell_what_leaves(pod.model_copy(update={"inventory": "/another"}), [pod.env], said.append)
    assert len(said) == 2
