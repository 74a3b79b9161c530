"""Environment variables that a stage sets and that no code asks for: a switch that was renamed, or mistyped.

Said only of a family (`KERN_`) of which the tree's code asks for others. What names a variable otherwise than to set
it, or in a comment, may ask for it: a table of flags, C++, a shell script. So may what makes names of a part
(`f"KERN_{name}"`), and what is installed under the family's name.
"""

from __future__ import annotations

import contextlib
import re
import tokenize
from io import StringIO
from pathlib import Path
from typing import Dict, FrozenSet, Iterable, Iterator, List, Set, Tuple

# Of CUDA, PyTorch, the system and others: families, and words that are nobody's alone.
_OTHERS = frozenset((
    "ACCELERATE", "AMD", "ATEN", "AWS", "BASH", "BUILD", "C10", "CACHE", "CI", "CMAKE", "CONDA", "CUBLAS", "CUDA",
    "CUDNN", "CUTE", "CUTLASS", "CXX", "DATA", "DEBUG", "DISABLE", "DS", "ENABLE", "FI", "FORCE", "GIT", "GITHUB",
    "GLOO", "GPU", "HF", "HIP", "HSA", "HTTP", "HTTPS", "JAX", "KINETO", "KMP", "LC", "LD", "LOCAL", "LOG", "MASTER",
    "MAX", "MIN", "MKL", "MPI", "NCCL", "NO", "NSA_POD", "NUM", "NUMBA", "NUMEXPR", "NV", "NVCC", "NVIDIA", "NVSHMEM",
    "NVTE", "OMP", "OMPI", "OPENBLAS", "OUTPUT", "PIP", "PYTEST", "PYTHON", "PYTORCH", "RANK", "RAY", "ROCM", "RUN",
    "SLURM", "SKIP", "TEST", "TF", "TOKENIZERS", "TORCH", "TORCHDYNAMO", "TORCHINDUCTOR", "TORCHELASTIC",
    "TRANSFORMERS", "TRITON", "UCX", "USE", "UV", "WANDB", "WORLD", "XDG", "XLA",
))  # fmt: skip
_OF_FAMILY = re.compile(r"[A-Z][A-Z\d]*_\w+")
_SETS = re.compile(rf"(?<![\w$.-])({_OF_FAMILY.pattern})=")
_ASKS = re.compile(r"\benviron\b|getenv|env::var")
_WORDS = (".md", ".rst")
_CODE = (".py", ".pyx", ".pxd", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".rs", ".go", ".jl", ".json")
"""Files in which a name before a `=` or `:` is not one that is set for another program."""
_NO_CODE = (tokenize.COMMENT, tokenize.NL)
_BEGINS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
_MOST_BYTES = 1 << 20


class Variables:
    """Of the `tree` with these `files`, beside packages of these names; the code is read once for each set of names."""

    def __init__(self, tree: Path, files: Iterable[str], installed: Iterable[str]) -> None:
        self._tree, self._files = tree, [name for name in files if not name.endswith(_WORDS)]
        own = {part for name in self._files for part in name.partition(".")[0].split("/")}
        self._others = _OTHERS.union(_family(name).upper() for name in installed if name not in own)
        self._found: Dict[FrozenSet[str], Set[str]] = {}

    def unread(self, given: Iterable[str], scripts: Iterable[str]) -> Iterator[str]:
        """As doubts: those that a stage was given, and that its scripts set."""
        texts = list(scripts)
        names = {*filter(_OF_FAMILY.fullmatch, given), *(name for text in texts for name in _SETS.findall(text))}
        suspects = frozenset(name for name in names if _family(name) not in self._others)
        if suspects not in self._found:
            self._found[suspects] = self._unread(suspects) if suspects else set()
        for name in sorted(self._found[suspects]):
            if not any(_names(name, text, is_code=False) for text in texts):
                yield f"{name} is set, and the tree's code, which asks for others of {_family(name)}_, does not name it"

    def _unread(self, names: FrozenSet[str]) -> Set[str]:
        left = set(names)
        asked: Set[str] = set()
        for file, text in self._texts():
            is_code = file.endswith(_CODE)
            said = {name for name in left if _names(name, text, is_code=is_code)}
            code = _without_comments(file, text) if said else ""
            asks = {name for name in said if _names(name, code, is_code=is_code)}
            left = {name for name in left - asks if not _makes(name, text)}
            families = {_family(name) for name in left} - asked if _ASKS.search(text) else ()
            asked.update(family for family in families if re.search(rf"[\"']{family}_\w+[\"']", text))
            if not left:
                break
        return {name for name in left if _family(name) in asked}

    def _texts(self) -> Iterator[Tuple[str, str]]:
        for name in self._files:
            path = self._tree / name
            with contextlib.suppress(OSError):
                if path.is_file() and path.stat().st_size <= _MOST_BYTES:
                    yield name, path.read_text("utf-8", "replace")


def _without_comments(file: str, text: str) -> str:
    """Without what only tells people of a variable: of Python also without texts that are statements."""
    if not file.endswith(".py"):
        return re.sub(r"^\s*//.*" if file.endswith(_CODE) else r"^\s*#.*", "", text, flags=re.MULTILINE)
    kept: List[str] = []
    before = tokenize.NEWLINE
    with contextlib.suppress(SyntaxError, tokenize.TokenError):
        tokens = [t for t in tokenize.generate_tokens(StringIO(text).readline) if t.type not in _NO_CODE]
        for i, token in enumerate(tokens[:-1]):
            is_statement = before in _BEGINS and tokens[i + 1].type == tokenize.NEWLINE
            kept += [] if is_statement and token.type == tokenize.STRING else [token.string]
            before = token.type
        return " ".join(kept)
    return text


def _family(name: str) -> str:
    return name.partition("_")[0]


def _names(name: str, text: str, *, is_code: bool) -> bool:
    """Whether a text has the name otherwise than where it is set."""
    is_set = "" if is_code else r"(?![\"']?\s*[:=])"
    return name in text and re.search(rf"\$\{{?{name}(?!\w)|(?<!\w){name}(?!\w){is_set}", text) is not None


def _makes(name: str, text: str) -> bool:
    """Whether a text may make the name of parts: `f"KERN_{{name}}"`, `prefix + "_USE_FAST"`."""
    family, _, rest = name.partition("_")
    if family not in text and rest not in text:
        return False
    begins = (match[1] for match in re.finditer(rf"[\"']({family}(?:_\w*_)?_?)(?=[\"'{{%])", text))
    return any(map(name.startswith, begins)) or re.search(rf"[\"'}}]_?{rest}(?!\w)", text) is not None
