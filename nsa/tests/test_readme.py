"""The README's examples run as they stand."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import nsa

README = Path(nsa.__file__).parents[1] / "README.md"
DOCUMENTS = (README, *sorted((README.parent / "docs").glob("*.md")))
BLOCKS = re.findall(r"(?:^(?:    .*)?\n)+", README.read_text(), re.M)
EXAMPLES = [block for block in BLOCKS if "import torch" in block]


def run(example: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(re.sub(r"^    ", "", example, flags=re.M), str(README), "exec"), names)
    return names


def test_an_operation_a_layer_and_a_model_are_shown() -> None:
    assert [re.findall("nsa_attention|NativeSparseAttention|NSAForCausalLM", example)[0] for example in EXAMPLES] == [
        "nsa_attention",
        "NativeSparseAttention",
        "NSAForCausalLM",
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_of_the_library_is_there(document: Path) -> None:
    """`nsa.x.y`, called or not; modules to run are looked for elsewhere."""
    for name in re.findall(r"(?<!-m )(?<![\w.])(nsa(?:\.\w+)+)", document.read_text()):
        parent, _, last = name.rpartition(".")
        assert hasattr(import_module(parent), last) or find_spec(name), name


def test_the_operation() -> None:
    assert run(EXAMPLES[0])["o"].shape == (1, 1000, 16, 64)


def test_the_layer_and_its_cache() -> None:
    names = run(EXAMPLES[1])
    torch.testing.assert_close(names["token"], names["y"].detach()[:, 99:], rtol=1e-4, atol=1e-5)
    assert names["cache"].lengths.tolist() == [100, 100]


def test_the_hugging_face_model() -> None:
    pytest.importorskip("transformers")
    names = run(EXAMPLES[2])
    assert names["more"].shape == (1, 28) and names["loss"].requires_grad
