"""The lock as uv writes it, and as the tool keeps it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from orchestrator.shared.failure import Failure
from orchestrator.shared.vendor import tomli
from orchestrator.shared.wheels.lockfile import Wheel, from_pylock

ONE, TWO = "1" * 64, "2" * 64
# In the notations that TOML allows, and that uv or another of its versions may choose.
PYLOCK = f"""\
lock-version = "1.0"
created-by = "uv"  # [[packages]]

[[packages]]
name = "iniconfig"
version = "2.3.1"
wheels = [{{ url = "https://i.example/a/iniconfig-2.3.1-py3-none-any.whl", upload-time = 2026-10-06T22:48:36Z, size = 7552, hashes = {{ sha256 = "{ONE}" }} }}]

[[packages]]
name = 'odd "name"'
wheels = [
    {{ name = "odd.whl", hashes = {{ md5 = "x", sha256 = "{TWO}" }}, url = "https://i.example/odd%2Bcpu-1-cp311-abi3-manylinux_2_17_x86_64.whl" }},
    {{ url = 'https://i.example/odd%2Bcpu-1-cp311-cp311-manylinux_2_17_x86_64.whl' }},  # of no known hash
    {{ url = "https://i.example/odd\\u002Bcpu-1-cp311-cp311-manylinux_2_28_x86_64.whl" }},
]

[[packages]]
name = "apart"
[[packages.wheels]]
url = "file:///links/apart-1-py3-none-any.whl"
[packages.wheels.hashes]
sha256 = "{ONE}"
"""  # noqa: E501


def test_a_pylock_is_read_however_it_is_written() -> None:
    assert from_pylock(PYLOCK) == [
        Wheel("iniconfig", "https://i.example/a/iniconfig-2.3.1-py3-none-any.whl", ONE),
        Wheel('odd "name"', "https://i.example/odd+cpu-1-cp311-cp311-manylinux_2_28_x86_64.whl", None),
        Wheel("apart", "file:///links/apart-1-py3-none-any.whl", ONE),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[packages]]\nname = "source-only"\n', "uv's lockfile has no wheel of source-only"),
        ("[[packages]\n", "uv's lockfile cannot be read: TOMLDecodeError: "),
        ("packages = 1", "uv's lockfile cannot be read: TypeError: "),
        ("[[packages]]\nwheels = [{}]\n", "uv's lockfile cannot be read: KeyError: 'name'"),
    ],
)
def test_what_is_no_lock_of_wheels_is_one_sentence(text: str, says: str) -> None:
    with pytest.raises(Failure) as failed:
        from_pylock(text)
    assert str(failed.value).startswith(says) and "\n" not in str(failed.value)


def test_the_reader_of_toml_is_as_it_was_published() -> None:
    published = {
        "__init__.py": "7182927b251660b7d649eec79e0dcaf03a59973793400990a693d9f6f8b73eca",
        "_parser.py": "3e782f1bc85639ecef630ae686df3d849f2bedd2e9c987d8f5109a5a154df131",
        "_re.py": "a12359fe294523a72112e434d58452a14c9d050affa2417f9927474e4166bfdd",
        "_types.py": "f864c6d9552a929c7032ace654ee05ef26ca75d21b027b801d77e65907138b74",
    }
    folder = Path(tomli.__file__).parent
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.py")} == published
