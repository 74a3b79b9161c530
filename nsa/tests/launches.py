"""What a GPU would be asked to launch, on a machine without one: `python -m nsa.tests.launches ARCHITECTURE [CASE]...`

Kernels are compiled for the architecture as ever, and go to a driver that writes down what it is to launch. Tensors on
the CPU stand in for those of the GPU. A call is traced: allocations, PyTorch's operations and launches in turn, with
each address as the tensor that it lies in and the bytes from its beginning. What is right says the trace of a call that
nothing is recorded of. That of the recorded call, and those of repetitions with tensors elsewhere, are to be the same,
and a repetition is to hold no more at any launch. One JSON line for each comparison.

It needs a process without TRITON_INTERPRET=1, which decides how kernels are defined.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields
from difflib import unified_diff
from functools import partial
from itertools import count
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia
from triton.runtime.driver import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from nsa import NSAConfig, host, library, nsa_attention, nsa_decode, ops, routing
from nsa.attention import GIVEN
from nsa.cache import NSACache
from nsa.kernels import attention, recorded
from nsa.kernels.common import hopper, streams
from nsa.kernels.ranges import fused
from nsa.kernels.selected import fused as fused_selected
from nsa.kernels.tuning import lookup
from nsa.phi import MlpPhi, WeightedPhi
from nsa.plans import PLANS

Tensors = dict[str, Any]
Call = Callable[[Tensors], object]

FLAGS = sum(x.name in ("padding", "round_f32_to_tf32") for x in fields(TensorDescriptor))
"""What a kernel gets of a descriptor without a tensor map, beside its address, shape and strides, twice."""

# --- a driver that launches nothing ---


@dataclass(frozen=True)
class Map:
    """A tensor map: of what is at an address, and how it lies there."""

    address: int
    how: tuple[Any, ...]


class Driver:
    """A GPU of one architecture to Triton, which hands each launch, and each allocation of a repetition, to `trace`."""

    handle = 1  # of the stream beside the current one, 0
    trace: Trace

    def __init__(self, architecture: str) -> None:
        self.target = GPUTarget("cuda", int(architecture.removeprefix("sm_")), 32)
        self.utils = self
        self.forked = False
        self._loaded = count()
        self._kernels: dict[str, tuple[Any, Sequence[Any]]] = {}

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": lookup.SHARED_MEMORY[lookup.tiles_of(*divmod(self.target.arch, 10))]}

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[object, str, int, int, int]:
        assert binary[:4] == b"\x7fELF", name
        function = f"{name} {next(self._loaded)}"
        self._kernels[function] = self._made  # its launcher was made just before
        return object(), function, 0, 0, 1024

    def launcher_cls(self, source: Any, metadata: Any) -> nvidia.CudaLauncher:
        """Triton's, which makes one of each compiled kernel."""
        self._made = source, getattr(metadata, "tensordesc_meta", None) or ()
        return nvidia.CudaLauncher(source, metadata)

    def launch(self, *given: Any) -> None:
        """The compiled function that it calls at last: with grid, stream and function, and the arguments at the end."""
        (*grid, stream, function), values = given[:5], given[-1] if isinstance(given[-1], (list, tuple)) else given[13:]
        self.trace.streams.append((self.forked, stream))
        self.trace.launched(function, tuple(grid), *self._kernels[function], list(values))

    def fork(self, device: torch.device) -> Driver:
        """Stands in for the current stream and the one beside it."""
        self.forked = True
        return self

    def join(self) -> None:
        self.forked = False

    def on(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def fill_tma_descriptor(self, address: int, *layout: Any) -> Map:
        return Map(address, layout)

    fill_tma_descriptor_tiled = fill_tma_descriptor

    def build_signature_metadata(self, kinds: Sequence[str]) -> Sequence[str]:
        return kinds

    def empty(self, shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Stands in for the allocator, which no dispatcher sees."""
        return self.trace.empty(shape, stride, dtype)


@contextmanager
def on(architecture: str) -> Iterator[Driver]:
    """Inside the block CPU tensors are computed with as on such a GPU, but for what kernels do."""
    found, before = Driver(architecture), dict(vars(driver))
    token = lookup.COMPILING_FOR.set(lookup.tiles_of(*divmod(found.target.arch, 10)))
    patches = [
        mock.patch.object(recorded, "COMPILING_FOR", ContextVar("nobody_compiles", default=None)),
        mock.patch.object(recorded, "_empty_on", lambda device: found.empty),
        mock.patch.object(recorded, "SMALL", -1),  # the trace tells tensors apart by their memory
        mock.patch.object(routing.request, "capability", lambda device: divmod(found.target.arch, 10)),
        mock.patch.object(library, "modes", lambda: 0),  # the trace is one
        mock.patch.object(streams, "fork", found.fork),
        *_without_compiled_parts(found),
    ]
    for module in (fused, fused_selected) if hopper.lacking() is None else ():
        launch = module._launcher()
        patches.append(mock.patch.object(module, "_launcher", lambda launch=launch: launch))
    driver.set_active(found)
    try:
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            yield found
    finally:
        lookup.COMPILING_FOR.reset(token)
        vars(driver).update(before)


def _without_compiled_parts(found: Driver) -> Iterator[Any]:
    """Triton's launchers, but for what is C in them and would be linked with CUDA's driver."""
    if hasattr(nvidia, "compile_module_from_src") and hasattr(nvidia, "make_launcher"):
        yield mock.patch.object(nvidia, "compile_module_from_src", lambda **how: found)
        yield mock.patch.object(nvidia, "library_dirs", list)
    else:
        for name in ("PyKernelArg", "ARG_CONSTEXPR", "ARG_KERNEL", "ARG_TUPLE"):
            yield mock.patch.object(nvidia, name, dict, create=True)


# --- what happens ---


@dataclass
class Trace(TorchDispatchMode):
    """Writes down what happens in the block, each tensor by the memory that it lies in.

    Attributes:
        known: names of the memory that there was before, by its tensors.
        held: takes everything that is made, so that no address is ever another tensor's too.
        lines: what happened.
        alive: at each launch, which of what was made until then is there.
        streams: at each launch, whether there are two streams, and which one it went to.
        repeated: of the launches, those of a recording, which names tensors by their addresses.
    """

    known: Mapping[str, Tensor]
    driver: Driver
    held: list[Any] | None = None
    lines: list[str] = field(default_factory=list)
    alive: list[set[str]] = field(default_factory=list)
    streams: list[tuple[bool, int]] = field(default_factory=list)
    repeated: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self._made = count()
        self._places: list[tuple[str, int, int, StorageWeakRef]] = []
        for name, x in self.known.items():
            self._add(name, x)
        self._given = len(self._places)

    def __enter__(self) -> Trace:
        self.driver.trace = self
        return super().__enter__()  # type: ignore[no-any-return]

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        given = [x for x in tree_leaves((arguments, named)) if isinstance(x, Tensor)]
        found = function(*arguments, **named)
        results = [x for x in tree_leaves(found) if isinstance(x, Tensor)]
        new = [x for x in results if not any(_storage(x) == _storage(y) for y in given) and not self._live(x)]
        if function.overloadpacket in recorded.ALLOCATIONS:
            for x in new:
                self._allocated(x)
        elif new or function._schema.is_mutable:
            said = ", ".join(map(self._said, (*arguments, *(f"{name}={y}" for name, y in named.items()))))
            for x in new:
                self._add(f"made {next(self._made)}", x)
            self.lines.append(f"{function}({said}) -> {', '.join(map(self._said, results))}")
        return found

    def empty(self, shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A new tensor."""
        with torch.utils._python_dispatch._disable_current_modes():
            x = torch.empty_strided(shape, stride, dtype=dtype)
        self._allocated(x)
        return x

    def _allocated(self, x: Tensor) -> None:
        self._add(f"made {next(self._made)}", x)
        self.lines.append(f"{self._said(x)} is allocated")

    def launched(
        self, kernel: str, grid: tuple[int, ...], source: Any, maps: Sequence[Any], values: list[Any]
    ) -> None:  # fmt: skip
        """Take a launch: which arguments are addresses, or at multiples of 16, and the constants, are the kernel's."""
        said, of_tensors, maps, rest = [], False, list(maps), iter(values)
        for at, (name, kind) in enumerate(source.signature.items()):
            x = next(rest)
            if kind.startswith("*"):
                of_tensors = of_tensors or isinstance(x, Tensor)
                address = x if type(x) is int else x.data_ptr()
                said.append(f"{name}={self._at(address)}")
                assert not _aligned(source, at) or address % 16 == 0, f"{kernel}: {name} is not at a multiple of 16"
            elif kind.startswith("tensordesc"):
                dimensions = kind[kind.index("[") : kind.index("]")].count(",") + 1
                base, layout = (x.address, x.how) if isinstance(x, Map) else (x, ())
                count = 2 * dimensions + (0 if isinstance(x, Map) else 2 * dimensions + FLAGS)
                sizes = [next(rest) for _ in range(count)]
                said.append(f"{name}={self._at(base if type(base) is int else base.data_ptr())} {layout} {sizes}")
                assert isinstance(x, Map) == bool(maps and maps.pop(0)), f"{kernel}: {name} is {x}"
            else:
                said.append(f"{name}={x!r}")
                assert kind != "constexpr" or _value(source.constants[(at,)]) == _value(x), f"{kernel}: {said[-1]}"
                assert not _aligned(source, at) or x % 16 == 0, f"{kernel}: {said[-1]} is no multiple of 16"
        assert not list(rest), f"{kernel} takes {len(source.signature)} arguments: {values}"
        self.lines.append(f"{kernel}{list(grid)}({', '.join(said)})")
        self.repeated += not of_tensors
        self.alive.append({name for name, *_, storage in self._places[self._given :] if not storage.expired()})

    # --- which memory ---

    def _add(self, name: str, x: Tensor) -> None:
        storage = x.untyped_storage()
        if self.held is not None:
            self.held.append(storage)
        self._places.append((name, storage.data_ptr(), storage.nbytes(), StorageWeakRef(storage)))

    def _live(self, x: Tensor) -> bool:
        at = x.untyped_storage().data_ptr()
        return at == 0 or any(at == begin and not storage.expired() for _, begin, _, storage in self._places)

    def _at(self, address: int) -> str:
        """The memory that is there now, and where in it."""
        for name, begin, size, storage in reversed(self._places):
            if begin <= address < begin + size and not storage.expired():
                return f"{name}+{address - begin}"
        return f"nothing at {address}" if address else "nothing"

    def _said(self, x: Any) -> str:
        if isinstance(x, Tensor):
            return f"{self._at(x.data_ptr())} {list(x.shape)} {x.stride()} {x.dtype}"
        return f"[{', '.join(map(self._said, x))}]" if isinstance(x, (list, tuple)) else repr(x)


def _storage(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _aligned(source: Any, at: int) -> bool:
    return ["tt.divisibility", 16] in source.attrs.get((at,), [])


def _value(x: Any) -> Any:
    return getattr(x, "value", x)


# --- comparing ---


@dataclass
class Compared:
    """How many launches a call has, how many of them a repetition repeats, and how many on the stream beside the
    current one; and how the traces of calls differ.
    """

    launches: int
    repeated: int
    beside: int
    differences: list[str]


def compared(driver: Driver, make: Callable[[int], Tensors], call: Call, hold: bool) -> Compared:
    """Of calls with other tensors each."""
    held: list[Any] | None = [] if hold else None
    everything = []

    def traced(seed: int) -> Trace:
        x = make(seed)
        everything.append(x)  # so that no later call's tensors lie where these did
        known = {**_tensors("", x), **_constants(), "note": host.note_of(torch.device("cpu"))}
        with Trace(known, driver, held) as trace:
            call(x)
        return trace

    traced(0)  # which makes what the plan holds, and compiles
    second = traced(1)
    with lookup.trying({}):
        right = traced(2)
    others = {"recorded": second, "repeated": traced(3), "repeated again": traced(4)}
    found = []
    for name, trace in others.items():
        found += list(unified_diff(right.lines, trace.lines, "called", name, lineterm="", n=0))
        found += [f"{name}: {line}" for line in _held_otherwise(right, trace)]
    last = others["repeated"]
    return Compared(len(right.alive), last.repeated, [stream for _, stream in last.streams].count(Driver.handle), found)


def _held_otherwise(right: Trace, trace: Trace) -> Iterator[str]:
    """Where a trace holds more than the right one, or where it has two streams, less than at the launch before."""
    before: set[str] = set()
    for at, (a, b, (forked, _)) in enumerate(zip(right.alive, trace.alive, trace.streams, strict=False)):
        if forked and not before <= b:
            yield f"at launch {at} it let go of {sorted(before - b)}, which the other stream may read"
        if not forked and not b <= a:
            yield f"at launch {at} it holds {sorted(b - a)}"
        before = b if forked else set()


def _tensors(prefix: str, x: Any) -> dict[str, Tensor]:
    """The tensors in x by names."""
    if isinstance(x, Tensor):
        return {prefix: x}
    if isinstance(x, dict):
        return {name: y for key, held in x.items() for name, y in _tensors(f"{prefix}{key} ", held).items()}
    if isinstance(x, (tuple, list)):
        return _tensors(prefix, dict(enumerate(x)))
    return _tensors(prefix, vars(x)) if hasattr(x, "__dict__") and type(x).__module__.startswith("nsa") else {}


def _constants() -> dict[str, Tensor]:
    return _tensors("", {f"{key[0].__name__}{key[1:]}": made for plan in PLANS for key, made in plan.tensors.items()})


# --- what is called ---

CONFIG = NSAConfig(l=8, d=4, l_sel=16, n_sel=4, w=20)
T, HEADS, KV_HEADS, DIM = 96, 8, 2, 128


def _randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape).to(dtype)


def _operands(seed: int, t: int = T, dtype: torch.dtype = torch.bfloat16) -> Tensors:
    q, do = (_randn(1, t, HEADS, DIM, dtype=dtype) for _ in range(2))
    k, v = (_randn(1, t, KV_HEADS, DIM, dtype=dtype) for _ in range(2))
    return {"q": q, "k": k, "v": v, "gates": _randn(1, t, HEADS, 3, dtype=dtype), "do": do}


def _shared_by_8(seed: int) -> Tensors:
    """Groups of 8 heads: the selected branch's gradient is in one kernel, too."""
    x, more = _operands(seed), _operands(seed)
    return {**x, **{name: torch.cat([x[name], more[name]], 2) for name in ("q", "gates", "do")}}


def _beside(x: Tensors, **how: Any) -> Any:
    """As of so many queries that the forward pass takes two streams."""
    with mock.patch.object(attention, "LEAST_BESIDE", 0):
        return _called(x, **how)


def _apart(seed: int) -> Tensors:
    """The branches' own keys and values, q a part of another tensor, and the incoming gradient not contiguous."""
    x, more = _operands(seed), [_operands(seed) for _ in range(2)]
    wide = torch.cat([x["q"], x["k"], x["v"]], 2)
    x["k"], x["v"] = ((x[name], *(y[name] for y in more)) for name in "kv")
    return {**x, "q": wide[:, :, :HEADS], "do": x["do"].transpose(1, 2).contiguous().transpose(1, 2)}


def _called(x: Tensors, **how: Any) -> list[Any]:
    """The whole operation and its gradient."""
    leaves = {name: _leaves(x[name]) for name in ("q", "k", "v", "gates")}
    found = nsa_attention(**leaves, config=CONFIG, backend="triton", **{**_given(x), **how})
    o = found[0] if isinstance(found, tuple) else found
    return [o, *torch.autograd.grad(o, library.flat(leaves.values()), x["do"])]


def _leaves(x: Any) -> Any:
    return tuple(map(_leaves, x)) if isinstance(x, tuple) else x.detach().requires_grad_()


def _given(x: Tensors) -> Tensors:
    return {name: y for name, y in x.items() if name in GIVEN[4:]}


def _without_gradient(x: Tensors) -> Any:
    with torch.no_grad():
        return nsa_attention(x["q"], x["k"], x["v"], x["gates"], CONFIG, backend="triton")


def _packed(seed: int) -> Tensors:
    return {**_operands(seed), **_borders(seed)}


def _borders(seed: int) -> Tensors:
    return {"cu_seqlens": torch.tensor([0, 31 + seed, T], dtype=torch.int32)}


def _chunk(seed: int) -> Tensors:
    late = {name: x[:, : T // 2].contiguous() for name, x in _operands(seed).items() if name not in "kv"}
    return {**_operands(seed), **late, "q_start": torch.tensor([T // 2 - seed])}


def _after(seed: int) -> Tensors:
    """Packed queries that stand after earlier keys."""
    of_keys = {f"{name}_k": x for name, x in _borders(seed).items()}
    return {**_chunk(seed), "q_start": None, "cu_seqlens": torch.tensor([0, 20 - seed, T // 2]), **of_keys}


def _means_and_blocks(seed: int) -> Tensors:
    x = _operands(seed)
    spans = (T - CONFIG.l) // CONFIG.d + 1
    blocks = torch.zeros(1, T, KV_HEADS, 2, dtype=torch.int32)
    blocks[..., 1] = -1
    return {**x, "compressed": (x["k"][:, :spans] * 1, x["v"][:, :spans] * 1), "block_indices": blocks}


def _many(x: Tensors, **how: Any) -> Any:
    """As of many queries: other schedules, and the fp32 sums of dq by heads."""
    with mock.patch.object(attention, "HOST_BOUND", 16), mock.patch.object(fused, "FEW_QUERIES", 16):
        return _called(x, **how)


def _single(x: Tensors) -> list[Any]:
    """Each operation by itself, with its gradient."""
    q, k, v, gates = (_leaves(x[name]) for name in ("q", "k", "v", "gates"))
    positions = x["positions"]
    turned = ops.rotate(q, positions, 1e4, backend="triton")
    means = [ops.compress(y, CONFIG, backend="triton") for y in (k, v)]
    o_cmp, lse = ops.compressed_attention(turned, *means, CONFIG, backend="triton")
    blocks = ops.select_blocks(turned, means[0], CONFIG, lse=lse, backend="triton")
    o_sel = ops.selected_attention(turned, k, v, blocks, CONFIG, validate=False, backend="triton")
    o_win = ops.sliding_window_attention(turned, k, v, CONFIG.w, backend="triton")
    o = ops.gated_combine(o_cmp, o_sel, o_win, gates, backend="triton")
    return list(torch.autograd.grad(o, (q, k, v, gates), x["do"]))


def _learned(x: Tensors) -> list[Any]:
    found = []
    for of in (WeightedPhi, MlpPhi):
        k, *parameters = (_leaves(x[name]) for name in ("k", *(("weight",) if of is WeightedPhi else MLP)))
        o = ops.compress(k, CONFIG, phi=of(*parameters), backend="triton")
        found += torch.autograd.grad(o, (k, *parameters), x["do"][:, : o.shape[1], :KV_HEADS])
    return found


MLP = ("position", "w_in", "b_in", "w_out", "b_out")


def _maps(seed: int) -> Tensors:
    inner = CONFIG.l * DIM
    shapes = {
        "weight": (CONFIG.l,), "position": (CONFIG.l, DIM), "w_in": (inner, 32), "b_in": (32,), "w_out": (32, DIM),
        "b_out": (DIM,),
    }  # fmt: skip
    return {**_operands(seed), **{name: _randn(KV_HEADS, *shape) for name, shape in shapes.items()}}


class _Decoding:
    """Steps of so many tokens through one cache, whose buffers stay."""

    def __init__(self, page_size: int | None, tokens: int = 1) -> None:
        self.tokens = tokens
        how = {"capacity": T, "dtype": torch.bfloat16, "page_size": page_size}
        self.cache = NSACache(CONFIG, 2, KV_HEADS, DIM, DIM, **how)
        self.cache.reserve([T, T])

    def make(self, seed: int) -> Tensors:
        heads = {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS, "gates": HEADS}
        return {name: _randn(2, self.tokens, n, 3 if name == "gates" else DIM) for name, n in heads.items()} | {
            "cache": dict(enumerate(self.cache.tensors)),
            "workspace": dict(enumerate(self.cache.workspaces.values())),
        }

    def step(self, x: Tensors) -> object:
        attend = {"backend": "triton", "strict": True}
        o = nsa_decode(x["q"], x["k"], x["v"], x["gates"], self.cache, **attend)
        return o, ops.cached_attention(x["q"][:, -1:], x["gates"][:, -1:], self.cache, **attend)


Case = tuple[Callable[[int], Tensors], Call]
HALF, SINGLE = (partial(_operands, dtype=dtype) for dtype in (torch.float16, torch.float32))


def _positions(seed: int) -> Tensors:
    return {**_operands(seed), "positions": torch.arange(T)[None] + seed}


def cases() -> dict[str, Callable[[], Case]]:
    """What is compared, by name."""
    return {
        "both": lambda: (_operands, _called),
        "forward": lambda: (_operands, _without_gradient),
        "apart": lambda: (_apart, partial(_called, return_lse=True)),
        "deterministic": lambda: (_operands, partial(_called, deterministic=True, compressed_rope=1e4)),
        "packed": lambda: (_packed, _called),
        "chunk": lambda: (_chunk, _called),
        "packed chunks": lambda: (_after, _called),
        "means": lambda: (_means_and_blocks, _called),
        "many": lambda: (_operands, _many),
        "group": lambda: (_shared_by_8, _beside),
        "packed group": lambda: ((lambda seed: {**_shared_by_8(seed), **_borders(seed)}), _beside),
        "chunk of many": lambda: (_chunk, _beside),
        "many of a group": lambda: (_shared_by_8, _many),
        "half": lambda: (HALF, _called),
        "fp32": lambda: (SINGLE, _called),
        "single": lambda: (_positions, _single),
        "learned": lambda: (_maps, _learned),
        "decode": lambda: ((held := _Decoding(None)).make, held.step),
        "paged": lambda: ((held := _Decoding(32)).make, held.step),
        "several": lambda: ((held := _Decoding(32, 3)).make, held.step),
    }


def main(arguments: list[str]) -> int:
    """Print what comparing each case gives, first with everything held that is made, then with what is freed."""
    architecture, *names = arguments
    torch.manual_seed(0)
    with on(architecture) as driver:
        for name in names or cases():
            make, call = cases()[name]()
            for hold in (True, False):
                PLANS.clear()
                print(json.dumps({"case": name, **asdict(compared(driver, make, call, hold))}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
