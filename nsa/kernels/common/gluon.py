"""What the Gluon kernels for sm_90 share: tiles to and from memory by TMA, and how products are held.

Gluon changes from one Triton to the next; importing this fails where it is not the one that `hopper.lacking` asks for.
"""

from __future__ import annotations

from torch import Tensor
from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

LOG2E = gl.constexpr(1.4426950408889634)

REGISTERS = 240
"""Of a thread of the partitions that compute, two warpgroups in all; four warps that copy leave them so many."""

ELEMENTS = {2: gl.float16, 4: gl.float32}
"""What stands for any type of so many bytes in a layout."""


def descriptor(x: Tensor, shape: list[int], strides: list[int], box: list[int]) -> TensorDescriptor:
    """Of x, with the layout in shared memory that products read."""
    layout = gl.NVMMASharedLayout.get_default_for(box, ELEMENTS[x.dtype.itemsize])
    return TensorDescriptor(x, shape, strides, box, layout)


load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
"""A tile at coordinates, by TMA: (descriptor, coordinates, barrier, tile). Triton 3.8 gave it another name."""


@builtin
def add_tile(descriptor, coordinates, tile, _semantic=None):
    """memory[box at coordinates] += tile, by TMA; Gluon has no name for it before Triton 3.8."""
    at = _semantic._convert_to_ir_values(coordinates, require_i64=False)
    _semantic.builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, descriptor.handle, at, tile.handle)


@gluon.jit
def barriers(SLOTS: gl.constexpr, ARRIVALS: gl.constexpr):
    """One for each slot of a ring, complete after so many arrivals."""
    found = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(SLOTS):
        mbarrier.init(found.index(i), count=ARRIVALS)
    return found


@gluon.constexpr_function
def product(rows, columns, warps):
    """How wgmma holds a product [rows, columns] in `warps` warps: by rows as far as they reach, then by columns."""
    down = min(warps, rows // 16)
    return gl.NVMMADistributedLayout([3, 0], [down, warps // down], [16, columns * down // warps, 16])


@gluon.jit
def sign_of(b_delta):
    """The gate's sign, 1 or -1, of what `backward_preprocess` leaves with delta."""
    return ((b_delta.to(gl.int32, bitcast=True) << 31) | 0x3F800000).to(gl.float32, bitcast=True)


@gluon.jit
def store_rows(p_x, x, o_row, m_row, START: gl.constexpr, WIDTH: gl.constexpr, ADD: gl.constexpr):
    """Store x [BN, WIDTH] in columns START onwards of its rows, or add it to them."""
    layout: gl.constexpr = x.type.layout
    o_row = gl.convert_layout(o_row, gl.SliceLayout(1, layout))
    m_row = gl.convert_layout(m_row, gl.SliceLayout(1, layout))
    o_column = START + gl.arange(0, WIDTH, layout=gl.SliceLayout(0, layout))
    p_tile = p_x + gl.expand_dims(o_row, 1) + gl.expand_dims(o_column, 0)
    if ADD:
        gl.atomic_add(p_tile, x, mask=gl.expand_dims(m_row, 1), sem="relaxed")
    else:
        gl.store(p_tile, x.to(p_x.dtype.element_ty), mask=gl.expand_dims(m_row, 1))
