"""Made text for training: short stories whose questions are answered by what was said far before."""

from __future__ import annotations

import random

import torch
from torch import Tensor

NAMES = ("Ada", "Ben", "Cleo", "Dina", "Emil", "Fay", "Gus", "Hana", "Ivo", "June", "Karl", "Lea")
COLOURS = ("red", "blue", "green", "white", "black", "yellow", "grey", "brown")
THINGS = ("lamp", "rope", "coat", "boat", "drum", "clock", "key", "book", "cup", "knife", "map", "bell")
PLACES = ("the cellar", "the harbour", "the market", "the old mill", "the garden", "the tower", "the forest", "the inn")
MOVES = (
    "{a} met {b} near {p}.",
    "{a} waited for {b} at {p}.",
    "{a} and {b} went to {p}.",
    "{a} wrote to {b} from {p}.",
)


def story(source: random.Random) -> str:
    """Some people hide some things, other things happen, then somebody asks for each."""
    people = source.sample(NAMES, 4)
    hidden = [(name, source.choice(COLOURS), source.choice(THINGS), source.choice(PLACES)) for name in people]
    told = [f"{name} hid the {colour} {thing} in {place}." for name, colour, thing, place in hidden]
    between = [_move(source) for _ in range(source.randint(2, 6))]
    asked = [f"Where did {name} hide the {colour} {thing}? In {place}." for name, colour, thing, place in hidden]
    source.shuffle(asked)
    return " ".join([*told, *between, *asked]) + "\n"


def _move(source: random.Random) -> str:
    a, b = source.sample(NAMES, 2)
    return source.choice(MOVES).format(a=a, b=b, p=source.choice(PLACES))


def batch(seed: int, size: int, length: int) -> Tensor:
    """Bytes [size,length] of stories, int64; the same for the same seed."""
    return torch.stack([_passage(random.Random(f"{seed}/{row}"), length) for row in range(size)])


def _passage(source: random.Random, length: int) -> Tensor:
    text = b""
    while len(text) < length:
        text += story(source).encode()
    return torch.tensor(list(text[:length]))
