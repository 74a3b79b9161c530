"""Secret values in streams: found across any border of pieces, in bounded memory; and which variables are secret."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import re
import string
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.agent.run.logs import Log
from orchestrator.config.variables import Described, values_of
from orchestrator.errors import InputError
from orchestrator.shared.redaction import MIN_LENGTH, NOTHING, Redactor, looks_secret

# Two letters only: values that overlap themselves and each other.
VALUE = st.text("ab", min_size=6, max_size=9)


@settings(deadline=None)
@given(VALUE, VALUE, st.text("ab", max_size=60), st.lists(st.integers(1, 7), min_size=60, max_size=60))
def test_no_border_between_pieces_hides_a_value(one: str, two: str, text: str, sizes: list[int]) -> None:
    stream = Redactor([("X", one), ("Y", two)]).stream()
    data, out = text.encode(), b""
    for size in sizes:
        out += stream.feed(data[:size])
        data = data[size:]
        assert len(stream._held) < 9
    out += stream.end()
    covered = [any(v in text[max(0, i - len(v) + 1) : i + len(v)] for v in (one, two)) for i in range(len(text))]
    assert re.sub(rb"\*\*\*[XY]\*\*\*", b"", out).decode() == "".join(
        c for c, hidden in zip(text, covered, strict=True) if not hidden
    )


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=6, max_size=40))
def test_a_value_is_found_as_programs_write_it(value: str) -> None:
    redactor = Redactor([("SECRET", value)])
    raw = value.encode()
    encoded = (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), quote(value, safe=""))
    for written in (value, json.dumps(value), repr(value), repr(raw), quoteattr(value)[1:-1], *encoded):
        assert redactor.text(f"<{written}>").count("***SECRET***") >= 1
        assert value not in redactor.text(f"<{written}>")


def test_a_value_is_found_in_a_form_that_was_sent() -> None:
    assert Redactor([("SECRET", "pass phrase, long")]).text("a=pass+phrase%2C+long&b") == "a=***SECRET***&b"


@settings(deadline=None)
@given(st.integers(6, 20), st.integers(6, 20), st.sampled_from(["...", "\u2026", "......"]), st.integers(1, 80))
def test_both_parts_of_a_shortened_value_are_found(head: int, tail: int, dots: str, size: int) -> None:
    value = "hf_abcdefghijklmnopqrstuv"
    stream = Redactor([("T", value)]).stream()
    data = f"'{value[:head]}{dots}{value[-tail:]}' and {value}..., ...{value[3:9]} {dots}".encode()
    out = b"".join(stream.feed(data[i : i + size]) for i in range(0, len(data), size)) + stream.end()
    assert out.decode() == f"'***T***{dots}***T***' and ***T***..., ...{value[3:9]} {dots}"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 80])
@pytest.mark.parametrize("dots", ["...", "\u2026"])
def test_what_is_left_between_two_ellipses_is_found(dots: str, size: int) -> None:
    stream = Redactor([("T", "hf_abcdefghijklmnopqrstuv")]).stream()
    data = f"'hf_abcd{dots}mnopqrst{dots}\nabcdef{dots}cat{dots}mnopqrst and mnopqrst{dots}".encode()
    out = b"".join(stream.feed(data[i : i + size]) for i in range(0, len(data), size)) + stream.end()
    assert out.decode() == f"'***T***{dots}***T***{dots}\nabcdef{dots}cat{dots}mnopqrst and mnopqrst{dots}"


FAILING = """
import os
T = os.environ["T"]
def login(token): return False
def test_a(): assert T == "expected"
def test_call(): assert login(token=T)
def test_environ(): assert "NOT_SET" in os.environ
def test_dict(): assert {"url": "https://example.org/" + "x" * 64, "auth": "Bearer " + T, "more": "y" * 90} == {}
def test_raises(): raise RuntimeError(f"401 for {T} at https://example.org/")
"""


def shows_part(value: str, size: int, text: str) -> bool:
    """Whether `size` characters of `value` that follow each other stand in `text`."""
    return any(value[i : i + size] in text for i in range(len(value) - size + 1))


@pytest.mark.process
@pytest.mark.parametrize(("length", "least"), [(40, 10), (300, 100)])
def test_pytest_shortens_values_and_shows_no_part_of_a_secret(tmp_path: Path, length: int, least: int) -> None:
    """The reason for ellipses here: of a failed comparison, a call, the environment, pytest shows both ends of a value,
    and cuts the lines of its summary at the width of the terminal.
    """
    (tmp_path / "test_it.py").write_text(FAILING)
    value = "hf_" + "".join(random.Random(length).choices(string.ascii_letters + string.digits, k=length - 3))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--junitxml", "j.xml", "test_it.py"]
    variables = {"PATH": os.defpath, "T": value, "COLUMNS": "80"}
    stdout = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True).stdout
    assert "5 failed" in stdout
    for text in (stdout, (tmp_path / "j.xml").read_text()):
        assert shows_part(value, least, text.replace(value, "")), "whole values are not all that is shown"
        assert not shows_part(value, MIN_LENGTH, Redactor([("T", value)]).text(text))


def test_the_parts_of_an_address_are_secret_too() -> None:
    redactor = Redactor([("PROXY", "http://me:hunter%402@proxy.example:3128")])
    for text in ("http://me:hunter%402@other:1/x", "using password hunter@2", "Proxy-Authorization: me:hunter%402"):
        assert "hunter" not in redactor.text(text)
    assert redactor.text("proxy.example:3128") == "proxy.example:3128"


def test_each_line_of_a_key_is_found_by_itself() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n"
    shown = Redactor([("DEPLOY_KEY", key)]).text(f"E     {key.splitlines()[1]}\nE     {key.splitlines()[2]}")
    assert shown == "E     ***DEPLOY_KEY***\nE     ***DEPLOY_KEY***"


def test_a_log_holds_no_value_and_says_which_it_held(tmp_path) -> None:
    log = Log(tmp_path / "stdout", 1 << 16, Redactor([("HF_TOKEN", "hf_abcdefgh")]))
    for byte in b"one hf_abcdefgh two hf_abc":
        log.write(bytes([byte]))
    assert log.last_line() == "one ***HF_TOKEN*** two"
    log.close()
    assert (tmp_path / "stdout").read_text() == "one ***HF_TOKEN*** two hf_abc"
    assert log.redacted == ["HF_TOKEN"] and log.total == len("one ***HF_TOKEN*** two hf_abc")


def test_files_are_searched_and_nothing_is_found_without_secrets() -> None:
    assert Redactor([("A", "abcdef"), ("B", "ghijkl")]).names_in(io.BytesIO(b"x" * 70000 + b"ghijkl")) == ["B"]
    assert NOTHING.names_in(io.BytesIO(b"abcdef")) == [] and NOTHING.clean({"a": ["b"]}) == {"a": ["b"]}


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("HF_TOKEN", "hf_abcdefgh", True), ("WANDB_API_KEY", "0a1b2c3d", True), ("PGPASSWORD", "12345678", True),
        ("AWS_SECRET_ACCESS_KEY", "x/y+z", True), ("client_secret", "x", True), ("GHTOKEN", "ghp_x", True),
        ("HTTPS_PROXY", "http://u:pw@p:1", True), ("PIP_INDEX_URL", "https://ghp_0123456789abcdefghij@h/simple", True),
        ("HTTPS_PROXY", "http://proxy:3128", False), ("TOKENIZERS_PARALLELISM", "false", False),
        ("MAX_TOKENS", "abcdefgh", False), ("NSA_KEY_DIM", "64", False), ("MONKEY", "abcdefgh", False),
        ("HF_TOKEN", "", False), ("GIT_URL", "ssh://git@github.com/x", False),
    ],
)  # fmt: skip
def test_names_and_addresses_that_are_secret(name: str, value: str, secret: bool) -> None:
    assert looks_secret(name, value) is secret


def test_variables_as_they_are_written() -> None:
    env = {
        "PLAIN": "1", "HF_TOKEN": "hf_abcdefgh", "GIVEN": Described(secret="sesame"), "MODEL_KEY": "",
        "TAKEN": Described(from_env="MINE"), "OPEN": Described(from_env="USER", secret=False),
        "CACHE_KEY": Described(value="v1-cache", secret=False),
    }  # fmt: skip
    found = values_of(env, "env", {"MINE": "my value", "USER": "me"})
    assert found.secret == {"HF_TOKEN": "hf_abcdefgh", "GIVEN": "sesame", "TAKEN": "my value"}
    assert found.plain == {"PLAIN": "1", "MODEL_KEY": "", "OPEN": "me", "CACHE_KEY": "v1-cache"}


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        (Described(from_env="NOT_THERE"), "NOT_THERE is not set here"),
        (Described(secret="abc"), "fewer than 6 characters"),
        ("abc", "write {value: TEXT, secret: false}"),
    ],
)
def test_what_cannot_be_kept_secret_is_refused(variable: str | Described, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)) as refused:
        values_of({"HF_TOKEN": variable}, "env of pod 'p'", {})
    assert "abc" not in str(refused.value)
