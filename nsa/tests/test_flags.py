"""The registry of NSA_* variables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nsa import flags
from nsa.flags import __main__ as flags_command

# Every variable that the seed reports name.
SEEDS = """
NSA_DEBUG_COMPARE NSA_DEBUG_LOG NSA_DEBUG_TIMING NSA_LOG_LIMIT NSA_FA2_FORCE NSA_FA2_FORCE_DENSE NSA_FA2_FORCE_VARLEN
NSA_FA2_MIN_LEN_CMP NSA_FA2_MIN_LEN_WIN NSA_SEL_TRITON_ALLOW_GRAD NSA_SEL_TRITON_GROUP NSA_SEL_TRITON_MIN_L NSA_TEST_FA2
NSA_TEST_TRAIN NSA_TEST_TRITON_SEL NSA_TRITON_SEL_FORCE NSA_USE_FA2 NSA_USE_TRITON_SEL
""".split()


def test_every_variable_of_the_seeds_is_known() -> None:
    assert set(SEEDS) <= set(flags.REGISTRY)


def test_every_flag_is_read_somewhere() -> None:
    room = Path(flags.__file__).parent
    files = [path for path in room.parent.rglob("*.py") if room not in path.parents and path != Path(__file__)]
    read = {word for path in files for word in re.findall(r'(?<=[."])[a-z0-9_]+', path.read_text())}
    assert [field.name for field in flags.REGISTRY.values() if field.name not in read] == []


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("true", True), ("YES", True), ("on", True), ("0", False), ("off", False)]
)
def test_booleans(text: str, value: bool) -> None:
    assert flags.read({"NSA_USE_FA2": text}).use_fa2 is value


def test_unset_and_blank_leave_the_default() -> None:
    assert flags.read({"NSA_USE_FA2": " "}) == flags.read({}) == flags.Flags()


@pytest.mark.parametrize(
    ("variable", "text"), [("NSA_USE_FA2", "maybe"), ("NSA_SEL_TRITON_MIN_L", "-1"), ("NSA_LOG_LIMIT", "3.5")]
)
def test_values_of_the_wrong_type_are_refused(variable: str, text: str) -> None:
    with pytest.raises(flags.FlagError, match=f"{variable}='{text}'"):
        flags.read({variable: text})


def test_a_misspelt_variable_is_reported_with_its_neighbour() -> None:
    with pytest.warns(UserWarning, match="NSA_USE_TRITON_SELL is set.*did you mean NSA_USE_TRITON_SEL"):
        flags.read({"NSA_USE_TRITON_SELL": "1"})


def test_a_misspelt_variable_is_an_error_when_strict() -> None:
    with pytest.raises(flags.FlagError, match="NSA_FOO"):
        flags.read({"NSA_FOO": "1", "NSA_STRICT": "1"})


def test_the_orchestrators_variables_are_not_ours() -> None:
    assert flags.unknown({"NSA_POD_HOME": "x", "NSA_POD_ARTIFACTS": "y", "PATH": "z"}) == []


def test_using_overrides_inside_its_block_only() -> None:
    before = flags.current()
    with flags.using(use_fa2=True):
        assert flags.current().use_fa2
    assert flags.current() == before


def test_flags_are_read_nowhere_else() -> None:
    package = Path(flags.__file__).parents[1]
    readers = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"environ|getenv", path.read_text()) and "NSA_" in path.read_text()
    ]
    assert [path for path in readers if not path.startswith(("flags/", "tests/"))] == []


def test_table_shows_effective_values(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NSA_SEL_TRITON_MIN_L", "128")
    monkeypatch.setenv("NSA_SPEELING", "1")
    assert flags_command.main(["--json"]) == 0
    printed = capsys.readouterr()
    rows = {row["name"]: row for row in json.loads(printed.out)}
    assert rows.keys() == {*flags.REGISTRY, "fa2_min_len_win", "fa2_min_len_cmp", "sel_triton_min_L"}
    assert (rows["NSA_SEL_TRITON_MIN_L"]["value"], rows["NSA_SEL_TRITON_MIN_L"]["source"]) == (128, "environment")
    assert rows["sel_triton_min_L"]["value"] == 128
    assert rows["fa2_min_len_win"]["source"].startswith("profile ")
    assert "NSA_SPEELING is set" in printed.err


def test_table_refuses_what_it_cannot_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("NSA_USE_FA2", "2")
    assert flags_command.main([]) == 2
    assert capsys.readouterr().err.startswith("error: NSA_USE_FA2='2' is not a boolean")
