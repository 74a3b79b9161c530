"""flash-attn and flash-attn-4 as they are found and called, with packages of their interfaces written with masks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nsa import NSAConfig, reference
from nsa.fallback import torch as torch_backend
from nsa.providers import fa2, flash
from nsa.routing import How
from nsa.tests.testing import Problem, assert_close
from nsa.tools import fa2_probe

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
PROBLEM = Problem(CONFIG, tokens=75, batch=2, kv_heads=2, group_size=2, dk=8, dv=8)
SHAPES = {"batch": PROBLEM, "packed": replace(PROBLEM, batch=1, lengths=(0, 21, 1, 8, 53, 0))}
CORE = """
import torch
from nsa.providers.flash import Varlen
from nsa.tests.test_fa2_phases import masked_varlen
def varlen(q, k, v, borders, longest, scale, causal, left):
    assert causal and int(borders.diff().max()) == longest
    return masked_varlen(q, k, v, Varlen(borders, longest, scale, left, False))
def dense(q, k, v, scale, causal, left):
    batch, tokens = q.shape[:2]
    borders = torch.arange(batch + 1, dtype=torch.int32) * tokens
    o, lse = varlen(*(x.flatten(0, 1) for x in (q, k, v)), borders, tokens, scale, causal, left)
    return o.unflatten(0, (batch, tokens)), lse.unflatten(0, (batch, tokens)).transpose(1, 2)
"""
PACKAGES = {
    "flash-attn 2.8.3": ("flash_attn/__init__.py", """
__version__ = "2.8.3"
def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
        softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
        return_attn_probs=False, block_table=None):
    left, right = window_size
    assert right == 0 and return_attn_probs
    left = None if left < 0 else left
    o, lse = varlen(q, k, v, cu_seqlens_q, max_seqlen_q, softmax_scale, causal, left)
    return o, lse.T, None
def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
        alibi_slopes=None, deterministic=False, return_attn_probs=False):
    left, right = window_size
    assert right == 0 and return_attn_probs
    return *dense(q, k, v, softmax_scale, causal, None if left < 0 else left), None
"""),
    "flash-attn-4 4.0.0b36": ("flash_attn/cute/__init__.py", """
def flash_attn_varlen_func(q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None,
        max_seqlen_k=None, min_seqlen_k=None, seqused_q=None, seqused_k=None, gather_kv_indices=None, page_table=None,
        softmax_scale=None, causal=False, window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1,
        pack_gqa=None, deterministic=False, return_lse=False):
    left, right = window_size
    assert right == 0 and return_lse
    o, lse = varlen(q, k, v, cu_seqlens_q, max_seqlen_q, softmax_scale, causal, left)
    return o, lse.T
def flash_attn_func(q, k, v, qv=None, gather_kv_indices=None, softmax_scale=None, causal=False,
        window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False,
        return_lse=False):
    assert window_size[1] == 0 and return_lse
    return dense(q, k, v, softmax_scale, causal, window_size[0])
"""),
}  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which `flash_attn` is found first, and of which nothing is left afterwards."""

    def loaded() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] == "flash_attn"]

    for name in loaded():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    flash.provider.cache_clear()
    yield tmp_path
    for name in loaded():  # not by monkeypatch, which would put them back
        del sys.modules[name]
    flash.provider.cache_clear()


def installed(site: Path, name: str) -> None:
    file, text = PACKAGES[name]
    path = site / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CORE + text)
    package, number = name.split(" ")
    about = site / f"{package.replace('-', '_')}-{number}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {number}\n")


@pytest.mark.parametrize("problem", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_called_by_its_interface(site: Path, name: str, problem: Problem) -> None:
    installed(site, name)
    found = flash.provider()
    assert isinstance(found, flash.Flash)
    assert found.name == name
    x = problem.tensors()
    where = {"scale": 0.3, "cu_seqlens": problem.cu_seqlens, "q_start": None}
    how = How(**where, deterministic=True)
    for window in (1, 7, 100):
        o, lse = fa2.window(x["q"], x["k_win"], x["v_win"], window, how)
        expected = reference.sliding_window_attention(x["q"], x["k_win"], x["v_win"], window, **where)
        assert_close(o, expected, torch.float32)
        assert_close(lse, torch_backend.window(x["q"], x["k_win"], x["v_win"], window, how)[1], torch.float32)
    if problem.cu_seqlens is None:
        assert found.dense is not None
        expected = reference.sliding_window_attention(x["q"], x["k_win"], x["v_win"], problem.tokens, **where)
        assert_close(found.dense(x["q"], x["k_win"], x["v_win"], 0.3, None, True)[0], expected, torch.float32)
    k_cmp, v_cmp = (reference.compress(x[f"{n}_in"], CONFIG, cu_seqlens=problem.cu_seqlens) for n in ("k_cmp", "v_cmp"))
    o, lse = fa2.compressed(x["q"], k_cmp, v_cmp, CONFIG, how)
    expected, expected_lse = reference.compressed_attention(x["q"], k_cmp, v_cmp, CONFIG, **where)
    assert_close(o, expected, torch.float32)
    assert_close(lse, expected_lse, torch.float32)


def test_flash_attn_goes_before_flash_attn_4(site: Path) -> None:
    for name in PACKAGES:
        installed(site, name)
    found = flash.provider()
    assert isinstance(found, flash.Flash)
    assert found.name == "flash-attn 2.8.3"


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("flash_attn/__init__.py", "raise ImportError('undefined symbol: _ZN3c10')", "undefined symbol: _ZN3c10"),
        ("flash_attn/cute/__init__.py", "import no_such_compiler", "No module named 'no_such_compiler'"),
        ("flash_attn/README.md", "", "No module named 'flash_attn.cute'"),
    ],
)
def test_a_package_that_cannot_be_imported_says_why(site: Path, file: str, text: str, why: str) -> None:
    (site / file).parent.mkdir(parents=True)
    (site / file).write_text(text)
    found = flash.provider()
    assert isinstance(found, str)
    assert found.startswith(f"flash-attn is installed and cannot be imported: {why}")


def test_what_stands_in_for_a_package_says_why(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "flash_attn").mkdir()
    (site / "flash_attn" / "__init__.py").write_text("import no_such_library")
    monkeypatch.setattr(flash, "_torch_varlen", lambda: flash.Flash("torch's", False, lambda *_: None, None))
    assert fa2_probe.lines()[0] == (
        "provider: torch's (flash-attn is installed and cannot be imported: No module named 'no_such_library')"
    )
