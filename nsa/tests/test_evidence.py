"""The evidence plugin, seen from outside: a JUnit file written by a real pytest run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

CONFTEST = """
from nsa.tests import testing

def pytest_configure(config):
    testing.install(config)
"""
TESTS = """
import torch
from nsa import NSAConfig, ops, reference

X = torch.randn(1, 20, 2, 8)
CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=3, w=7)

def test_window():
    ops.sliding_window_attention(X, X, X, 7)

def test_oracle_only():
    reference.sliding_window_attention(X, X, X, 7)

def test_compressed_twice():
    k = ops.compress(X, CONFIG)
    ops.compressed_attention(X, k, k, CONFIG)
    ops.compressed_attention(X, k, k, CONFIG)
"""


def test_routes_stand_in_the_junit_file(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    other = tmp_path / "other"  # its conftest is left out of the hooks of this directory's tests
    other.mkdir()
    (other / "conftest.py").write_text("def pytest_runtest_call(item): pass\n")
    (other / "test_other.py").write_text("def test_other(): pass\n")
    root = Path(__file__).parents[2]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--junitxml=out.xml",
        "test_it.py",
        "other",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(root), "PATH": ""}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    cases = ElementTree.parse(tmp_path / "out.xml").iter("testcase")
    routes = {case.get("name"): [(p.get("name"), p.get("value")) for p in case.iter("property")] for case in cases}
    assert routes == {
        "test_window": [("route.window", "torch@cpu")],
        "test_oracle_only": [],
        "test_compressed_twice": [("route.compressed", "torch@cpu")],
        "test_other": [],
    }
