"""Run by an environment's own Python, in a fresh process: does what is installed work, and is it what was locked?

Reads a JSON object {"packages", "pins", "cuda"} from stdin; prints one line, {"ok": facts} or {"error": sentence}.
Beside it lies triton_kernel.py. Both are copied out of the agent first, which may be a zip file.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

_SIZE = 1024
_LIKELY = "its wheel was built for another torch or another C++ ABI"


class Wrong(Exception):
    """What is not as it should be, as a sentence; `package` where it is that package's fault alone."""

    def __init__(self, sentence: str, package: str | None = None) -> None:
        super().__init__(sentence)
        self.package = package


def main() -> None:
    asked = json.load(sys.stdin)
    try:
        print(json.dumps({"ok": verify(asked)}))
    except Wrong as e:
        print(json.dumps({"error": str(e), "package": e.package}))


def verify(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that can be checked for this environment; Wrong at the first thing that is not right."""
    checks = ["versions"]
    _versions(asked["packages"])
    facts: dict[str, Any] = {"python": sys.version.split()[0]}
    if "torch" in asked["pins"]:
        facts.update(_torch(asked["cuda"]))
        checks += ["torch and CUDA runtime", "matmul"]
        if "triton" in asked["packages"]:
            _triton_pin(asked["packages"]["triton"])
            checks.append("triton is torch's own")
            if asked["cuda"] or "numpy" in asked["packages"]:
                checks.append(_triton_kernel(asked["cuda"]))
        if "flash-attn" in asked["packages"]:
            try:
                _flash_attn()
            except Wrong as e:
                raise Wrong(str(e), "flash-attn") from e
            checks.append("flash-attn forward and backward")
    return {**facts, "checks": checks}


def _versions(expected: Mapping[str, str]) -> None:
    for name, version in expected.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise Wrong(f"{name} is not installed") from None
        if found != version:
            raise Wrong(f"{name} is {found}, expected {version}")


def _torch(cuda: Any) -> dict[str, Any]:
    torch = _import("torch")
    found = torch.version.cuda
    if cuda is None and found is not None:
        raise Wrong(f"torch {torch.__version__} is built for CUDA {found}, expected a build without CUDA")
    if cuda is not None and found != cuda:
        raise Wrong(f"torch {torch.__version__} is built for CUDA {found}, expected {cuda}")
    facts: dict[str, Any] = {"torch": torch.__version__, "torch_cuda": found}
    if cuda is not None:
        if not torch.cuda.is_available():
            raise Wrong(f"torch {torch.__version__} sees no CUDA device: {_cuda_complaint(torch)}")
        facts["device"] = torch.cuda.get_device_name(0)
        facts["compute_capability"] = "{}.{}".format(*torch.cuda.get_device_capability(0))
    facts["cxx11_abi"] = bool(torch._C._GLIBCXX_USE_CXX11_ABI)
    _matmul(torch, "cuda" if cuda else "cpu")
    return facts


def _cuda_complaint(torch: Any) -> str:
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as e:
        return str(e).splitlines()[0]
    return "no reason is given"


def _matmul(torch: Any, device: str) -> None:
    """Whole numbers, so that the product is exact whatever the order of the sums."""
    left, right = (torch.randint(-8, 9, (64, 64), generator=torch.manual_seed(seed)) for seed in (0, 1))
    product = left.to(device, torch.float32) @ right.to(device, torch.float32)
    if not torch.equal(product.cpu().long(), left @ right):
        raise Wrong(f"torch multiplies matrices wrongly on {device}")


def _triton_pin(version: str) -> None:
    """torch's own requirement of triton, where it has one (CPU builds have none)."""
    for limit in _triton_limits(importlib.metadata.requires("torch") or []):
        operator, wanted = limit[:2], limit[2:].strip()
        fits = version == wanted if operator == "==" else version.split(".")[:2] == wanted.split(".")[:2]
        if operator in ("==", "~=") and not fits:
            raise Wrong(f"triton is {version}, torch requires triton{limit}")


def _triton_limits(requirements: list[str]) -> Iterator[str]:
    for requirement in requirements:
        match = re.match(r"^triton\s*\(?([=~<>!]=[^;,)]+)\)?", requirement)
        if match:
            yield match[1]


def _triton_kernel(cuda: Any) -> str:
    """Compile and run a kernel; without CUDA, and only then, the interpreter runs it, which needs no compiler."""
    os.environ["TRITON_INTERPRET"] = "0" if cuda else "1"
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    kernel, torch = _import("triton_kernel"), _import("torch")
    a, b = (torch.arange(_SIZE, dtype=torch.float32, device="cuda" if cuda else "cpu") * i for i in (1, 3))
    out = torch.zeros_like(a)
    try:
        kernel.launch(a, b, out)
    except Exception as e:  # whatever a compiler raises, its words are what the user needs
        raise Wrong(f"a Triton kernel does not compile and run: {_last_words(e)}") from e
    if not torch.equal(out, a + b):
        raise Wrong("a Triton kernel gives wrong numbers")
    return "Triton kernel on the GPU" if cuda else "Triton kernel in the interpreter"


def _flash_attn() -> None:
    torch = _import("torch")
    flash = _import("flash_attn")
    q, k, v = (torch.randn(1, 64, 2, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
    try:
        out = flash.flash_attn_func(q, k, v, causal=True)
        out.sum().backward()
    except RuntimeError as e:
        raise Wrong(f"flash-attn does not run: {_last_words(e)}") from e
    exact = torch.nn.functional.scaled_dot_product_attention(
        *(x.detach().double().transpose(1, 2) for x in (q, k, v)), is_causal=True
    ).transpose(1, 2)
    # fp16 has 11 bits: for values about 1 that is 1e-3 in the sum's rounding, with room for the softmax.
    if (out.double() - exact).abs().max() > 5e-3 or not all(x.grad.isfinite().all() for x in (q, k, v)):
        raise Wrong("flash-attn gives wrong numbers")


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as e:
        why = f" ({_LIKELY})" if "undefined symbol" in str(e) else ""
        raise Wrong(f"{name} cannot be imported: {e}{why}") from e


def _last_words(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' / '.join(lines[-3:])}"


if __name__ == "__main__":
    main()
