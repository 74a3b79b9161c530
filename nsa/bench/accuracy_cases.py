"""The shapes of the accuracy bench: those of the speed tables, and odd ones that meet every branch of the kernels."""

from __future__ import annotations

from nsa.bench.cases import Case
from nsa.config import NSAConfig

HOLES = 7
"""Every so many queries of a case with holes select no block."""


def _packed(name: str, *shape: int, lengths: tuple[int, ...], **rest: object) -> Case:
    return Case(name, *shape, sum(lengths), lengths=lengths, **rest)  # type: ignore[arg-type]


def _plain(name: str, *shape: int, **rest: object) -> Case:
    return Case(name, *shape, holes=False, **rest)  # type: ignore[arg-type]


TABLE = (
    _plain("P128 64k", 64, 4, 128, 128, 65536),
    _plain("P128 64k smooth", 64, 4, 128, 128, 65536, regime="smooth"),
    _plain("P128 16k", 64, 4, 128, 128, 16384),
    _plain("P128 8k", 64, 4, 128, 128, 8192),
    _plain("P192 64k", 64, 4, 192, 128, 65536),
    _plain("L128 64k", 32, 8, 128, 128, 65536),
    _plain("L128 64k smooth", 32, 8, 128, 128, 65536, regime="smooth"),
    _plain("L128 8k", 32, 8, 128, 128, 8192),
)
"""Of the speed tables (docs/kernels.md)."""

SMALL_BLOCKS = NSAConfig(l=16, d=8, l_sel=32, n_sel=8, w=100)
NOTHING_DIVIDES = NSAConfig(l=24, d=12, l_sel=40, n_sel=9, w=77)
LONG_BLOCKS = NSAConfig(l=64, d=32, l_sel=128, n_sel=4, w=1, init_blocks=0, local_blocks=1)
BLOCKS_OF_48 = NSAConfig(l_sel=48, n_sel=9, w=128)
BLOCKS_OF_96 = NSAConfig(l_sel=96, n_sel=6, w=200)
LONG_SPAN = NSAConfig(l=64, d=16, l_sel=16, n_sel=24, w=300, init_blocks=2, local_blocks=3)

ODD = (
    Case("group of 6", 12, 2, 96, 96, 4097),
    Case("group of 12", 24, 2, 64, 64, 1000, batch=3),
    Case("group of 1", 4, 4, 128, 128, 4097),
    Case("group of 2 fp16", 4, 2, 128, 64, 2049, dtype="fp16"),
    Case("40/40 fp16", 8, 2, 40, 40, 1025, dtype="fp16"),
    Case("80/96 batch", 16, 4, 80, 96, 65, batch=3),
    Case("96/40", 8, 2, 96, 40, 777),
    Case("256/256", 16, 1, 256, 256, 2049),
    Case("256/256 group of 4", 8, 2, 256, 256, 1025),
    Case("192/128 fp16", 64, 4, 192, 128, 4097, dtype="fp16"),
    Case("one token", 64, 4, 128, 128, 1, batch=3),
    Case("63 tokens", 64, 4, 128, 128, 63),
    Case("65 tokens", 64, 4, 128, 128, 65),
    Case("4097 tokens", 64, 4, 128, 128, 4097),
    Case("fp32", 16, 4, 64, 64, 1025, dtype="fp32"),
    Case("fp32 group of 12", 12, 1, 256, 256, 300, dtype="fp32"),
    Case("fp32 group of 6 192/128", 12, 2, 192, 128, 700, dtype="fp32"),
    Case("small blocks", 16, 2, 128, 128, 2000, config=SMALL_BLOCKS),
    Case("nothing divides", 16, 2, 64, 64, 1500, config=NOTHING_DIVIDES),
    Case("long blocks", 16, 2, 128, 128, 3000, config=LONG_BLOCKS),
    Case("blocks of 48", 16, 2, 128, 128, 2000, config=BLOCKS_OF_48),
    Case("blocks of 96, group of 4", 8, 2, 128, 96, 1500, config=BLOCKS_OF_96),
    Case("long span", 8, 2, 64, 64, 1500, config=LONG_SPAN),
    _packed("packed", 16, 2, 128, 128, lengths=(0, 700, 1, 0, 1, 1500, 63, 31, 32, 0)),
    _packed("packed group of 4", 8, 2, 80, 96, lengths=(1, 333, 0, 65, 2048), dtype="fp16"),
    _packed("packed fp32", 12, 2, 40, 80, lengths=(129, 0, 1, 300), dtype="fp32"),
    Case("chunk", 16, 2, 128, 128, 300, batch=3, starts=(0, 700, 4000)),
    Case("chunk group of 4", 8, 2, 64, 64, 129, batch=2, starts=(1000, 31), dtype="fp16"),
)
