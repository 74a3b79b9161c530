"""pods.yaml: what is read, and how each mistake is answered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.config import yamlfile
from orchestrator.config.inventory import load_inventory
from orchestrator.errors import InputError
from tests.support import ROOT

GOOD = """
pods:
  local: {transport: local}
  pi-4090:
    host: 203.0.113.10
    port: 10645
    user: root
    identity_file: ~/.ssh/prime
    host_key: "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"
    gpu: RTX 4090
    driver: "550.163.01"
    cost_per_hour: 0.40
    environment: torch28
    runbook: nsa-validate
    workdir: ~/.nsa-pod
    env: {HTTPS_PROXY: "http://127.0.0.1:1", N: 3}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pods.yaml"
    path.write_text(text)
    return path


def test_every_key_of_the_contract_is_read(tmp_path: Path) -> None:
    pod = load_inventory(str(write(tmp_path, GOOD))).pod("pi-4090")
    assert (pod.name, pod.transport, pod.host, pod.port) == ("pi-4090", "ssh", "203.0.113.10", 10645)
    assert (pod.gpu, pod.driver, pod.cost_per_hour) == ("RTX 4090", "550.163.01", 0.40)
    assert pod.env == {"HTTPS_PROXY": "http://127.0.0.1:1", "N": "3"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("pods: {a: {host: x, prot: 3}}", ":1: key 'pods.a.prot': unknown key: did you mean port"),
        ("pods:\n  a:\n    host: x\n    port: 99999\n", ":4: key 'pods.a.port': expected"),
        ("pods: {api: {host: x}}\ndefault: ap\n", ":2: key 'default': unknown pod 'ap': did you mean api?"),
        ("pods: {a: {}}", "expected exactly one of 'host' and 'ssh_config'"),
        ("pods: {a: {host: x, ssh_config: y}}", "expected exactly one of 'host' and 'ssh_config'"),
        ("pods: {a: {transport: local, host: x}}", "is this machine: expected no 'host'"),
        ("pods: {a: {transport: local, port: 1, user: x}}", "expected no 'port' or 'user'"),
        ("pods:\n  a: {transport: ssl}\n", ":2: key 'pods.a.transport': expected 'ssh' or 'local', got 'ssl'"),
        ("pods: {a: {host: x, driver: 550.1}}", "key 'pods.a.driver': expected text, got 550.1"),
        ("pods: {a: {host: x, env: {A: yes}}}", "key 'pods.a.env.A': expected text, got true"),
        ("pods:\n  a: {host: x}\n  a: {host: y}\n", ":3: duplicate key 'a'"),
        ("pods: {a: {host: x, name: b}}", "expected no 'name' beside its key"),
        ("pods: {../a: {host: x}}", "key 'pods"),
        ("pods: {a: {host: x, host_key: 'MD5:00'}}", "key 'pods.a.host_key'"),
        ("pods: {a: {host: ''}}", "key 'pods.a.host': expected a plain name or address, got ''"),
        ('pods: {a: {host: "b\\nc"}}', "key 'pods.a.host': expected a plain name or address, got"),
        ("pods: {a: {host: -oProxyCommand=x}}", "key 'pods.a.host': expected a plain name or address, got"),
        ("pods: {a: {host: 'b c'}}", "key 'pods.a.host': expected a plain name or address, got 'b c'"),
        ("pods: {a: {host: root@10.0.0.1}}", "expected a name or address alone, got 'root@10.0.0.1': root"),
        ("pods: {a: {host: '10.0.0.1:10645'}}", "got '10.0.0.1:10645': 10645 belongs under 'port'"),
        ("pods: {a: {host: 'ssh://10.0.0.1'}}", "got 'ssh://10.0.0.1': leave ssh:// out"),
        ("pods: {a: {host: '[2001:db8::1]'}}", "got '[2001:db8::1]': leave the brackets out"),
        ("pods: {a: {host: 'b\"c'}}", "key 'pods.a.host': expected a plain name or address, got"),
        ('pods: {a: {host: x, user: "b\\nHost *"}}', "key 'pods.a.user': expected a plain name or address, got"),
        ("pods: {a: {host: x, workdir: ''}}", "key 'pods.a.workdir': expected"),
        (
            "pods: {a: {host: x, workdir: ~ci/pod}}",
            "or one under ~/, got '~ci/pod': write that user's home out",
        ),
        ("pods: {a: {host: x, python: ~ci/py}}", "key 'pods.a.python': expected an absolute path or one under ~/"),
        ("pods: {a: {host: x, env: {A=B: x}}}", "expected a variable's name (letters, digits and _), got 'A=B'"),
        ("pods: {a: {host: x, env: {'': x}}}", "expected a variable's name (letters, digits and _), got ''"),
        ('pods: {a: {host: "\\x1b[3m"}}', "key 'pods.a.host': expected a plain name or address, got"),
        ("pods: {a: {host: x, gpu: ''}}", "key 'pods.a.gpu': expected text without quotes"),
        ("pods: {a: {host: x, cost_per_hour: true}}", "key 'pods.a.cost_per_hour': expected a number, got true"),
        ("pods:\n  4090: {host: x}\n", ":2: key '4090': expected text, which this is in quotes"),
        ("pods: {a: {host: x, env: {on: x}}}", "key 'on': expected text, which this is in quotes"),
        ("pods: {a: x}", "key 'pods.a': expected a mapping with the keys transport, host"),
        ("pods: [a", "not valid YAML"),
        ("pods:\n  a: {host: x}\n b: {host: y}\n", ":3: not valid YAML: it is not indented as the lines are"),
        ("pods:\n\ta: {host: x}\n", ":2: not valid YAML: a tab"),
        ("pods:\n  a: host: x\n", ":2: not valid YAML: a colon in text without quotes"),
        ("pods: {}\n<<<<<<< HEAD\ndefault: a\n=======\n", ":2: not valid YAML: git left a merge conflict in it"),
        ("pods: {a: {host: x}}\n---\npods: {}\n", ":2: not valid YAML: a line of --- begins a second document"),
        ("default: a\npods\n", ":2: not valid YAML: a key without its colon"),
        ('pods:\n  a: {host: "x}\n', ":2: not valid YAML: a quote that does not end"),
        ("pods: {a: {host: x, driver: 550}}", "expected text, got 550, which is text in quotes"),
        ("pods: &a [*a]", "refers to itself"),
        (
            "pods:\n  a: &a {host: x, prot: 3}\n  b:\n    <<: *a\n",
            ":2: key 'pods.b.prot': unknown key: did you mean port",
        ),
        (
            "pods:\n  a: {host: x}\n  b: {<<: [{host: y}, {<<: {port: 0}}]}\n",
            ":3: key 'pods.b.port': expected at least 1",
        ),
        ("pods: {a: &a {<<: *a, host: x}}", "refers to itself"),
        ("pods: {a: {<<: 1}}", "not valid YAML: expected a mapping or list of mappings for merging"),
        ("pods: {a: {host: x}}\t\n", ":1: not valid YAML: a tab, where YAML takes nothing but blanks"),
        ("pods: {a: {host: ' x'}}", "expected a plain name or address, got ' x'"),
        ('pods: {a: {host: x, gpu: "b\\nc"}}', r"line breaks and control characters, got 'b\nc'"),
        ("pods: {a: {host: x, gpu: ' '}}", "key 'pods.a.gpu': expected text without quotes"),
        ("pods: {a: {host: x, workdir: pod}}", "expected an absolute path or one under ~/, got 'pod'"),
        ("pods: {a: {host: x, workdir: $HOME/pod}}", "expected an absolute path or one under ~/, got '$HOME/pod'"),
        ("", ":1: expected a mapping with the keys pods"),
        ("- a\n", ":1: expected a mapping with the keys pods"),
        ("a: 1\n", "unknown key"),
    ],
)
def test_mistakes_name_file_line_key_and_expectation(tmp_path: Path, text: str, sentence: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_inventory(str(path))
    assert str(caught.value).startswith(str(path))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_merge_takes_over_what_is_not_there(tmp_path: Path) -> None:
    text = "pods:\n  a: &a {host: x, port: 1, env: {A: b}}\n  b: {<<: *a, port: 2}\n  c: {<<: [{user: u}, *a]}\n"
    pods = load_inventory(str(write(tmp_path, text))).pods
    assert (pods["b"].host, pods["b"].port, pods["b"].env) == ("x", 2, {"A": "b"})
    assert (pods["c"].user, pods["c"].port) == ("u", 1)


def test_a_pods_yaml_that_is_no_file_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NSA_POD_INVENTORY", raising=False)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    for make, said in (
        (lambda path: path.symlink_to("away"), "does not exist"),
        (Path.mkdir, "is no file"),
    ):
        make(tmp_path / "pods.yaml")
        with pytest.raises(InputError, match=f"inventory {tmp_path}/pods.yaml {said}: expected a pods.yaml"):
            load_inventory()
        (tmp_path / "pods.yaml").rename(tmp_path / f"not-{said}")
    (tmp_path / "pods.yaml").write_text("pods: {mine: {transport: local}}")
    assert [*load_inventory().pods] == ["mine"]


def test_an_unknown_pod_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown pod 'pi-4080'.*did you mean pi-4090"):
        load_inventory(str(write(tmp_path, GOOD))).pod("pi-4080")


def test_order_of_inventories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.delenv("NSA_POD_INVENTORY", raising=False)
    assert list(load_inventory().pods) == ["local"]
    write(tmp_path, "pods: {up: {transport: local}}")
    assert list(load_inventory().pods) == ["up"]
    named = below / "other.yaml"
    named.write_text("pods: {env: {transport: local}}")
    monkeypatch.setenv("NSA_POD_INVENTORY", str(named))
    assert list(load_inventory().pods) == ["env"]
    explicit = below / "explicit.yaml"
    explicit.write_text("pods: {explicit: {transport: local}}")
    assert list(load_inventory(str(explicit)).pods) == ["explicit"]
    with pytest.raises(InputError, match="does not exist"):
        load_inventory(str(below / "none.yaml"))


def test_a_folder_is_no_inventory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no file: expected a pods"):
        load_inventory(str(tmp_path))


def test_the_shipped_inventory_loads() -> None:
    shipped = load_inventory(str(ROOT / "pods.yaml"))
    assert shipped.pod("local").transport == "local"
    assert shipped.pod("pi-4090").gpu == "RTX 4090"


def test_a_command_without_a_pod_gets_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable before the file, a name before both; without any a sentence says where one is expected."""
    monkeypatch.delenv("NSA_POD_DEFAULT", raising=False)
    without = load_inventory(str(write(tmp_path, GOOD)))
    with pytest.raises(
        InputError, match=r"expected --pod NAME \(local, pi-4090\), `default: NAME` in .*pods.yaml, or \$"
    ):
        without.chosen(None)
    inventory = load_inventory(str(write(tmp_path, GOOD + "default: pi-4090\n")))
    assert (inventory.chosen(None).name, inventory.chosen("local").name) == ("pi-4090", "local")
    monkeypatch.setenv("NSA_POD_DEFAULT", "local")
    assert inventory.chosen(None).name == "local"
    monkeypatch.setenv("NSA_POD_DEFAULT", "lokal")
    with pytest.raises(InputError, match=r"unknown pod 'lokal' \(of \$NSA_POD_DEFAULT\) in .*did you mean local"):
        inventory.chosen(None)


def test_a_file_that_cannot_be_read_is_not_said_to_be_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(str(tmp_path))}: cannot be read: Is a directory$"):
        yamlfile.read(tmp_path)
    (file := tmp_path / "pods.yaml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="cannot be read as UTF-8 text"):
        yamlfile.read(file)
