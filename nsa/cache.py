"""What later tokens will read, in buffers that are allocated ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import count
from operator import index
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from nsa import blocks, checks
from nsa.compressors import Compressor, MeanCompressor
from nsa.config import NSAConfig
from nsa.device import named_device
from nsa.host import numbers, to_device, with_numbers
from nsa.library import modes
from nsa.serving.page_table import PageTable
from nsa.serving.rows import PagedRows, Rows
from nsa.serving.slot_mapping import SlotMapping

NAME = "NSACache"
CACHES: WeakValueDictionary[int, NSACache] = WeakValueDictionary()
"""Those that exist, by `handle`."""
_handles = count()
Triple = checks.Triple
Branches = Tensor | Triple


def _integers(wanted: str, given: Any) -> list[int]:
    """The integers [N] of a tensor or a sequence; refuse anything else by saying what is wanted."""
    try:
        found = numbers(given) if isinstance(given, Tensor) else list(given)
        if not any(isinstance(x, bool) for x in found):  # a mask is no list of numbers
            return [index(x) for x in found]
    except TypeError:
        pass
    raise TypeError(f"{NAME}: {wanted}, got {given!r}")


def _placed(device: torch.device | str | None, dtype: torch.dtype | None) -> torch.device | None:
    """The device, if it and the dtype can be a cache's."""
    if dtype is not None:
        checks.dtype(NAME, "dtype", dtype)
    if device is None or modes() > 0:  # fake tensors are on devices that nobody has
        return device if device is None else torch.device(device)
    return named_device(device)


class NSACache:
    """Keys and values of a batch of sequences, each with its own length.

    It holds all selected keys and values, all compressed tokens, the last w of the window branch, and of the
    compressed branch the last l that are not compressed yet. Buffers grow by doubling. The compressed tokens come
    from `compress` as soon as their span is complete: token i with position i*d + l - 1.

    A captured decode step (`nsa.ops.nsa_decode`) reads and counts on `lengths` by itself; `advance` tells the host
    how often it was replayed. A buffer that grows, or a batch that changes, makes the graph invalid: `reserve` before.

    Attributes:
        config: the sizes.
        lengths: int64 [B], tokens of each sequence; the same tensor as long as batch and device stay.
        longest: the largest of them, known without asking the device.
        compressed, selected, window, pending: the buffers of the branches, and the last l of the compressed branch
            before compression.
        pages: where the pages of `compressed` and `selected` are; None without pages.
        compress: the compressor.
        branch_reads: int64 [B,Hkv,3], key rows that the last decode step read in each branch, counted where they
            were gathered; None before the first one, and after several tokens at once, of which none are counted. The
            next step may overwrite it.
        rewound: entries whose last step `undo` took back, and with it the oldest position of their window: new tokens
            do not see that one, the last token would.
        workspaces: what backends keep with this cache.
        plans: of decode steps, which name its buffers by their addresses; gone when these change.
        handle: a number by which operators know it.
    """

    @torch.inference_mode(False)  # as `_grow`
    def __init__(
        self, config: NSAConfig, batch: int, n_kv_heads: int, dk: int, dv: int, *, capacity: int = 1024,
        dtype: torch.dtype = torch.float32, device: torch.device | str | None = None,
        compress: Compressor | None = None, page_size: int | None = None,
    ) -> None:  # fmt: skip
        """Allocate room for `capacity` tokens of each of `batch` sequences; with pages, a table for so many.

        Args:
            config: the sizes.
            batch, n_kv_heads, dk, dv: B, Hkv, Dk, Dv.
            capacity: tokens that fit before the buffers grow.
            dtype, device: of the keys and values.
            compress: makes compressed tokens; the mean without it.
            page_size: tokens of a page, a multiple of l_sel and of d: sequences then take pages from a common pool as
                they grow. None keeps one contiguous buffer.

        Raises:
            ValueError: sizes, a dtype or a device that have no meaning here; the sentence says which.
            TypeError: an argument of another type.
        """
        checks.sizes(NAME, config)
        checks.counts(NAME, batch=batch, n_kv_heads=n_kv_heads, dk=dk, dv=dv, capacity=capacity)
        if page_size is not None:
            checks.counts(NAME, page_size=page_size)
            if page_size % config.l_sel or page_size % config.d:
                raise ValueError(
                    f"{NAME}: page_size must be a multiple of l_sel={config.l_sel} and of d={config.d}, got {page_size}"
                )
        device = _placed(device, dtype)
        if compress is not None and not callable(compress):
            raise TypeError(f"{NAME}: compress must be a function or None, got {type(compress).__name__}")
        self.config = config
        self.compress = compress or MeanCompressor(config)
        self.workspaces: dict[object, Any] = {}
        self.plans: dict[Any, Any] = {}

        def pair(*shape: int) -> tuple[Tensor, Tensor]:
            k, v = (torch.zeros(*shape, n_kv_heads, dim, dtype=dtype, device=device) for dim in (dk, dv))
            return k, v

        self.pages: PageTable | None = None
        self.compressed: Rows
        self.selected: Rows
        if page_size is None:
            self.compressed = Rows(*pair(batch, max(1, blocks.num_compressed(capacity, config))))
            self.selected = Rows(*pair(batch, capacity))
        else:
            self.pages = PageTable(batch, page_size, capacity, device)
            self.compressed = PagedRows(*pair(1, page_size // config.d), self.pages)
            self.selected = PagedRows(*pair(1, page_size), self.pages)
        self.window = Rows(*pair(batch, config.w))
        self.pending = Rows(*pair(batch, config.l))
        self.lengths = torch.zeros(batch, dtype=torch.int64, device=device)
        self._register()
        self._set_lengths([0] * batch)

    def _register(self) -> None:
        self.handle = next(_handles)
        CACHES[self.handle] = self

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "plans": {}}

    def __deepcopy__(self, memo: dict[int, Any]) -> NSACache:
        """With the same compressor, whose weights are not copied, unless that says how it is copied."""
        compress = deepcopy(self.compress, memo) if hasattr(self.compress, "__deepcopy__") else self.compress
        memo[id(self)] = copied = type(self).__new__(type(self))
        held = {name: x for name, x in self.__getstate__().items() if name != "compress"}
        copied.__setstate__({**deepcopy(held, memo), "compress": compress})
        return copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy, which is another cache."""
        vars(self).update(state)
        self._register()

    # --- what it holds ---

    @property
    def mean(self) -> MeanCompressor | None:
        """The compressor, if it is one whose tokens a kernel can make."""
        return self.compress if isinstance(self.compress, MeanCompressor) else None

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return len(self._lengths)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(self._lengths)

    @property
    def empty(self) -> bool:
        """Whether no sequence has a token."""
        return self.longest == 0

    @property
    def capacity(self) -> int:
        """Tokens of a sequence that fit before the buffers grow (with pages: before their table does)."""
        return self.selected.rows

    @property
    def reads(self) -> Tensor | None:
        """Key rows that each sequence's last decode step read in all branches, int64 [B]; None as `branch_reads`.

        Of KV heads that differ (local_blocks = 0 only) the largest. Compare with `nsa.blocks.reads_expected`.
        """
        return None if self.branch_reads is None else self.branch_reads.sum(-1).amax(-1)

    def _set_lengths(
        self, lengths: list[int], undone: list[int] | None = None, rewound: frozenset[int] = frozenset()
    ) -> None:
        """`undone`: the lengths that `undo` goes back to, if it may."""
        self._lengths, self._undone, self.rewound = lengths, undone, rewound
        device = self.window.k.device
        fresh = to_device(lengths, device)
        if fresh.shape == self.lengths.shape and fresh.device == self.lengths.device:
            self.lengths.copy_(fresh)  # a captured step reads this tensor
        else:
            self.lengths = fresh
        self.branch_reads: Tensor | None = None

    # --- growing ---

    def reserve(self, tokens: int | Sequence[int], *, capacity: int = 0) -> None:
        """Room for that many tokens, of every sequence or of each, and at least that capacity; never shrinks.

        Raises:
            ValueError: while a CUDA graph is captured, which could not use the new buffers.
        """
        wanted = self._of_each("tokens", tokens)
        capacity = max(capacity, *wanted)
        if self._holds(wanted) and capacity <= self.capacity:
            return
        if self.capturing:
            raise ValueError(
                f"{NAME}: no room for {capacity} tokens while a CUDA graph is captured; reserve them before"
            )
        self._grow(wanted, capacity)

    @torch.inference_mode(False)  # what stays is no tensor of the caller's mode
    def _grow(self, tokens: list[int], capacity: int) -> None:
        self.plans.clear()
        if capacity > self.capacity:
            self.workspaces.clear()
        if self.pages is not None:
            self.pages.reserve(tokens, capacity)
        self.selected.reserve(capacity)
        self.compressed.reserve(blocks.num_compressed(self.capacity, self.config))

    def _holds(self, tokens: list[int]) -> bool:
        return max(tokens) <= self.capacity if self.pages is None else self.pages.holds(tokens)

    @property
    def capturing(self) -> bool:
        """Whether a CUDA graph is being captured on the cache's device."""
        return self.lengths.is_cuda and torch.cuda.is_current_stream_capturing()

    def advance(self, counts: int | Sequence[int] = 1) -> None:
        """Tell the host that replays of a captured step appended `counts` tokens, to every sequence or to each.

        Raises:
            ValueError: more than the buffers hold: those were not appended.
        """
        new = self._of_each("counts", counts)
        lengths = [length + count for length, count in zip(self._lengths, new, strict=True)]
        if not self._holds(lengths):
            raise ValueError(f"{NAME}: a captured step ran beyond the capacity of {self.capacity} tokens")
        self._lengths, self._undone, self.rewound = lengths, None, self._still_rewound(new)

    def count_step(self, mapping: SlotMapping) -> None:
        """The host's part of a step whose kernels append: `lengths` on the device is already right."""
        if not self.capturing:  # what is captured does not run now
            self.rewound = self._still_rewound(mapping.counts)
            self._lengths, self._undone = mapping.ends, mapping.starts if mapping.width == 1 else None

    def slot_mapping(self, tokens: int, counts: Sequence[int] | Tensor | None = None) -> SlotMapping:
        """Where the next chunk [B,tokens,...] goes; of entry b only its first counts[b] tokens are real."""
        wanted = f"counts must be {self.batch} integers"
        real = [tokens] * self.batch if counts is None else _integers(wanted, counts)
        if len(real) != self.batch or any(not 0 <= count <= tokens for count in real):
            raise ValueError(f"{NAME}: {wanted} from 0 to {tokens}, got {real}")
        return SlotMapping(self._lengths, real, tokens)

    def _of_each(self, what: str, given: int | Sequence[int]) -> list[int]:
        """A number of tokens for each sequence, the same for all where one is given."""
        wanted = f"{what} must be {self.batch} integers"
        found = [given] * self.batch if isinstance(given, int) else _integers(wanted, given)
        if len(found) != self.batch or min(found) < 0:
            raise ValueError(f"{NAME}: {wanted} of at least 0, got {found}")
        return found

    @torch.no_grad()
    def append(self, k: Branches, v: Branches, *, counts: Sequence[int] | Tensor | None = None) -> None:
        """Take in the keys and values of a chunk.

        Args:
            k, v: one tensor [B,T,Hkv,Dk], [B,T,Hkv,Dv] for all branches, or a triple (cmp, sel, win).
            counts: integers [B]: of entry b only the first counts[b] tokens are real, the rest is padding.

        Raises:
            ValueError: shapes, dtype or device that are not the cache's.
        """
        keys, values = self.branches(k, v)
        mapping = self.slot_mapping(keys[0].shape[1], counts)
        if mapping.width == 0:
            return
        if self.capturing:
            raise ValueError(f"{NAME}: this step cannot be captured in a CUDA graph: the host appends its tokens")
        self.reserve(mapping.ends, capacity=self.longest + mapping.width)
        self._emit(mapping, keys[0], values[0])
        self.pending.write(mapping, keys[0], values[0])
        self.selected.write(mapping, keys[1], values[1])
        self.window.write(mapping, keys[2], values[2])
        undone = mapping.starts if mapping.width == 1 else None
        self._set_lengths(mapping.ends, undone, self._still_rewound(mapping.counts))

    def branches(self, k: Branches, v: Branches) -> tuple[Triple, Triple]:
        """The triples (cmp, sel, win) of keys and values, checked."""
        keys, values = checks.triple(NAME, "k", k), checks.triple(NAME, "v", v)
        held_k, held_v = self.window.stored
        (batch, _, heads, dk), dv = held_k.shape, held_v.shape[3]
        given = [("k", x, "B,T,Hkv,Dk") for x in keys] + [("v", x, "B,T,Hkv,Dv") for x in values]
        checks.axes(NAME, *given, B=batch, Hkv=heads, Dk=dk, Dv=dv)
        for name, x, _ in given:
            checks.alike(NAME, cache=held_k, **{name: x})
        return keys, values

    def recent(self, mapping: SlotMapping, k: Tensor, v: Tensor) -> Triple:
        """The window branch's keys and values [B,R,Hkv,D*] that the queries of a chunk see, before it is appended, and
        from which row of them on the chunk's own k, v [B,T,Hkv,D*] are: int64 [B].
        """
        held = [min(length, self.config.w - 1) for length in mapping.starts]
        first = [length - count for length, count in zip(mapping.starts, held, strict=True)]
        length = max(held) + mapping.width
        seen = (mapping.fetch(x, new, first, length) for x, new in zip(self.window.stored, (k, v), strict=True))
        return *seen, with_numbers(to_device(held, k.device), held)

    def _emit(self, mapping: SlotMapping, k: Tensor, v: Tensor) -> None:
        """Store the compressed tokens that the new rows complete."""
        done = [blocks.num_compressed(length, self.config) for length in mapping.starts]
        total = [blocks.num_compressed(length, self.config) for length in mapping.ends]
        made = SlotMapping(done, [after - before for before, after in zip(done, total, strict=True)], 0)
        width = max(made.counts)
        if width == 0:
            return
        first = [index * self.config.d for index in done]
        length = (width - 1) * self.config.d + self.config.l
        slab_k = mapping.fetch(self.pending.k, k, first, length)
        slab_v = mapping.fetch(self.pending.v, v, first, length)
        fresh = self.compress(slab_k, slab_v, to_device(first, k.device))
        self.compressed.write(SlotMapping(done, made.counts, width), *fresh)

    @torch.no_grad()
    def emit(self, k: Tensor, v: Tensor, counts: Tensor | None) -> None:
        """Store what one more token of each sequence completes, without asking the device or the host's lengths.

        The compressor runs at every step, whether or not a span ends with it. `lengths` stays.

        Args:
            k, v: of the compressed branch [B,1,Hkv,D*].
            counts: integers [B] on the device; 0 where there is no token. None: all have one.
        """
        config, t = self.config, self.lengths
        entry = torch.arange(len(t), device=t.device)
        arrived = t >= 0 if counts is None else counts > 0
        position = t[:, None] - (config.l - 1) + torch.arange(config.l, device=t.device)
        self.pending.put(t % config.l, arrived, k[:, 0], v[:, 0])
        slab_k, slab_v = (x[entry[:, None], position % config.l] for x in self.pending.stored)
        fresh_k, fresh_v = self.compress(slab_k, slab_v, position[:, 0])
        index = torch.div(position[:, 0], config.d, rounding_mode="floor")
        done = arrived & (index >= 0) & (position[:, 0] % config.d == 0)
        self.compressed.put(index.clamp(min=0), done, fresh_k[:, 0], fresh_v[:, 0])

    # --- changing ---

    @contextmanager
    def whole_or_nothing(self) -> Iterator[None]:
        """Should the block raise, what it appended is forgotten, and what that overwrote in the rings comes back."""
        lengths, rewound = self._lengths, self.rewound
        rings = [x for rows in (self.window, self.pending) for x in rows.stored]
        before = [x.clone() for x in rings]
        try:
            yield
        except BaseException:
            for x, old in zip(rings, before, strict=True):
                x.copy_(old)
            self._set_lengths(lengths, rewound=rewound)
            raise

    def undo(self) -> None:
        """Forget the last step: once, and only directly after a step of one token.

        It overwrote nothing that later tokens need, but the oldest position that the last token saw: see `rewound`.
        """
        if self._undone is None:
            raise ValueError(f"{NAME}: undo needs a step of one token directly before it")
        steps = enumerate(zip(self._undone, self._lengths, strict=True))
        overwritten = {entry for entry, (before, after) in steps if self.config.w <= before < after}
        self._set_lengths(self._undone, rewound=self.rewound | overwritten)

    def _still_rewound(self, counts: Sequence[int]) -> frozenset[int]:
        """What is left of `rewound` after these new tokens."""
        return frozenset(entry for entry in self.rewound if not counts[entry])

    def reset(self) -> None:
        """Forget everything; the buffers stay."""
        if self.pages is not None:
            self.pages.clear()
        self._set_lengths([0] * self.batch)

    @torch.inference_mode(False)  # as `_grow`
    def reorder(self, index: Tensor | Sequence[int]) -> None:
        """Entry i becomes a copy of entry index[i] (beam search); the batch takes the length of `index`."""
        wanted = f"reorder needs a list of entries from 0 to {self.batch - 1}"
        chosen = _integers(wanted, index)
        if not chosen or any(not 0 <= entry < self.batch for entry in chosen):
            raise ValueError(f"{NAME}: {wanted}, got {chosen}")
        entries, copies = to_device(chosen, self.lengths.device), []
        if self.pages is not None:
            copies = self.pages.reorder(chosen, self._lengths, self.config.l - self.config.d)
        for rows in self._all_rows:
            rows.reorder(entries, copies)
        self.workspaces.clear()
        self.plans.clear()
        rewound = frozenset(i for i, entry in enumerate(chosen) if entry in self.rewound)
        self._set_lengths([self._lengths[entry] for entry in chosen], rewound=rewound)

    @torch.inference_mode(False)  # as `_grow`
    def to(self, device: torch.device | str | torch.dtype | None = None, dtype: torch.dtype | None = None) -> NSACache:
        """Move it in place, as a module moves: `to("cuda")`, `to(torch.float16)` or both; gives itself.

        Raises:
            ValueError: a dtype that no keys have, or a device that this machine does not have.
        """
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        device = _placed(device, dtype)
        for rows in self._all_rows:
            rows.map(lambda x: x.to(device=device, dtype=dtype))
        if self.pages is not None:
            self.pages.to(device)
        self.workspaces.clear()
        self.plans.clear()
        self._set_lengths(self._lengths, rewound=self.rewound)
        return self

    @property
    def tensors(self) -> list[Tensor]:
        """All memory that a decode step may read or write."""
        found = [x for rows in self._all_rows for x in rows.stored]
        return [*found, self.lengths, *([] if self.pages is None else [self.pages.table])]

    @property
    def _all_rows(self) -> tuple[Rows, ...]:
        return self.compressed, self.selected, self.window, self.pending


def check_cache(operation: str, cache: object) -> None:
    """Refuse what is no cache."""
    if not isinstance(cache, NSACache):
        raise TypeError(f"{operation}: cache must be an NSACache, got {type(cache).__name__}")
