"""What tests call of their project: names for `kills`."""

from __future__ import annotations

import pytest

from orchestrator.config.under_test import functions, layers, silent

FILES = ["ops/__init__.py", "ops/soft.py", "src/pkg/attn.py", "kernel.py", "tests/test_a.py", "setup-x.py", "README.md"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from ops.soft import softmax\nsoftmax(1)\n", ["ops.soft:softmax"]),
        ("from ops import softmax as s, mask\ns(1)\nmask(1)\nmask(2)\n", ["ops:mask", "ops:softmax"]),
        ("import ops.soft as o, ops.soft\no.softmax(1)\nops.soft.top(1)\n", ["ops.soft:softmax", "ops.soft:top"]),
        ("from ops import soft\nsoft.prefix(1)\n", ["ops.soft:prefix"]),
        ("def test_a():\n    from pkg.attn import score\n    assert score(1) == 2\n", ["pkg.attn:score"]),
        ("from kernel import add\nadd[(1,)](2)\n", ["kernel:add"]),
        ("from ops.soft import softmax_ref, naive_top, Soft, make_input, _hidden, torch_top\n"
         "softmax_ref(1), naive_top(1), Soft(1), make_input(1), _hidden(1), torch_top(1)\n", []),
        ("from numpy import dot\nimport torch\ndot(1)\ntorch.add(1)\n", []),
        ("from ops.soft import softmax\nprint(softmax)\n", []),
        ("from .soft import softmax\nsoftmax(1)\n", []),
        ("not Python (", []),
    ],
)  # fmt: skip
def test_what_tests_call_by_the_name_that_they_import(text: str, found: list[str]) -> None:
    assert functions([text], FILES) == found


def test_those_that_are_called_most_are_named() -> None:
    text = "from kernel import a, b, c, d, e\n" + "".join(
        f"{name}(1)\n" * number for number, name in enumerate("abcde")
    )
    assert functions([text, text], FILES) == ["kernel:e", "kernel:d", "kernel:c", "kernel:b"]


def test_a_layer_is_named_by_its_forward() -> None:
    classes = layers("class Soft(Module):\n  def forward(self): ...\nclass Plain:\n  def call(self): ...\n")
    text = "from ops.soft import Soft, Plain, functional\nSoft(1)(2)\nSoft(1)\nPlain(1)\nfunctional(1)\n"
    assert functions([text], FILES, classes) == ["ops.soft:Soft.forward", "ops.soft:functional"]


def test_what_helps_tests_is_not_under_test() -> None:
    assert functions(["from tests.helpers import tokens\ntokens(1)\n"], ["tests/helpers.py"]) == []


@pytest.mark.parametrize(
    "body",
    [
        "return x + 1",
        "yield x",
        "out[0] = x",
        "out += x",
        "out.copy_(x)",
        "np.add(x, x, out=out)",
        "kernel[(1,)](x, out)",
    ],
)
def test_what_gives_a_number_is_not_silent(body: str) -> None:
    assert silent([f"def f(x, out):\n    {body}\n"]) == set()


def test_what_returns_nothing_has_nothing_that_could_be_wrong() -> None:
    quiet = "def show(x):\n    print(x)\ndef stop(x) -> None:\n    if x: return None\n    x.clear()\n"
    assert silent([quiet, "@jit\ndef kernel(x): store(x)\n"]) == {"show", "stop"}
    assert silent([quiet, "def show(x): return str(x)\n"]) == {"stop"}, "another of that name may be meant"
    text = "from ops.soft import show, softmax\nshow(1)\nshow(2)\nsoftmax(1)\n"
    assert functions([text], FILES, (), {"show"}) == ["ops.soft:softmax"]
