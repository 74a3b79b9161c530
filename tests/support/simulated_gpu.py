"""`triton` and `torch` as far as an agent sees them, on a GPU that nobody has: launches and allocations are counted."""

from __future__ import annotations

_DRIVER = """
class _Target: backend = "cuda"
class _Driver:
    def get_current_target(self): return _Target()
    def get_current_device(self): return DEVICE
class driver: active = _Driver()
"""
_LAZY = """
class LazyDict:
    def __init__(self, data): self.data, self.extras = data, []
    def get(self): raise RuntimeError("only a profiler asks for that")
"""
_CHAIN = """
class HookChain:
    def __init__(self): self.calls = []
    def add(self, function): self.calls.append(function)
    def __call__(self, metadata):
        for call in self.calls: call(metadata)
class runtime_knobs: launch_enter_hook = HookChain()
runtime = runtime_knobs()
"""
_ATTRIBUTE = "class runtime_knobs: launch_enter_hook = None\nruntime = runtime_knobs()\n"
_KERNEL = """
class CompiledKernel:
    launch_enter_hook = None
    def __init__(self, name): self.name = name
    def launch_metadata(self, grid, stream, *args):
        return None if {hook} is None else LazyDict({{"name": self.name}})
    def __getitem__(self, grid):
        def run(*args):
            metadata = self.launch_metadata(grid, None, *args)
            if {hook} is not None: {hook}(metadata)
        return run
"""
_TORCH = """
version = "2.9.0"
allocated = 0
class cuda:
    @staticmethod
    def is_initialized(): return allocated is not None and started
    @staticmethod
    def device_count(): return 1
started = False
class _C:
    @staticmethod
    def _cuda_hasPrimaryContext(i): return True
    @staticmethod
    def _cuda_memoryStats(i): return {"allocated_bytes": {"all": {"allocated": allocated}}}
def work():
    global allocated, started
    started, allocated = True, allocated + 512
"""


def triton(version: str) -> dict[str, str]:
    """The files of a package `triton` that launches as this version does: `CompiledKernel(name)[grid]()`."""
    number = tuple(int(part) for part in version.split("."))
    knobs = _CHAIN if number >= (3, 5) else _ATTRIBUTE if number >= (3, 4) else None
    hook = "knobs.runtime.launch_enter_hook" if knobs else "CompiledKernel.launch_enter_hook"
    imports = "from triton import knobs\n" if knobs else ""
    return {
        "triton/__init__.py": f"__version__ = {version!r}\n{imports}from triton import compiler, runtime\n",
        "triton/runtime.py": f"DEVICE = 0\n{_DRIVER}",
        "triton/compiler.py": f"{imports}{_LAZY}{_KERNEL.format(hook=hook)}",
        **({"triton/knobs.py": knobs} if knobs else {}),
    }


def torch() -> dict[str, str]:
    """The files of a package `torch` with `torch.work()`, which allocates on the GPU."""
    return {"torch/__init__.py": _TORCH}
