"""Any function, repeated as plans repeat the kernels' own, for the tests of recordings."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nsa import flags, routing
from nsa.kernels.recorded import repeated
from nsa.plans import PLANS, Plan, layout


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return self.function(*arguments)


def a_plan(*tensors: Tensor, settings: tuple[object, ...] = ()) -> Plan:
    """The plan of calls with such tensors: the same one for all of them."""
    key = *settings, *map(layout, tensors)
    found = PLANS.get(key)
    if found is None:
        shape = 1, 8, 8, 2, 1, 16, 16
        request = routing.Request("window", torch.device("cpu"), torch.float32, *shape)
        found = Plan(key, request, None, flags.current())
        PLANS.add(found)
    return found


_numbers = itertools.count()


def replayed(function: Callable[..., Any]) -> tuple[Callable[..., Any], Counted]:
    """The function as plans repeat it: called with tensors and settings."""
    counted, number = Counted(function), next(_numbers)

    def call(tensors: tuple[Tensor, ...], settings: tuple[object, ...]) -> Any:
        plan = a_plan(*tensors, settings=(number, *settings))
        return plan.within(lambda: repeated("any", counted, tensors, settings))

    return call, counted
