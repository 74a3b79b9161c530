"""The pod that a verb was given, to be talked with."""

from __future__ import annotations

import sys

from orchestrator.options import Reaching
from orchestrator.pod.session import PodSession
from orchestrator.store import trusted
from orchestrator.ui import Progress


def reach(o: Reaching, progress: Progress) -> PodSession:
    """Contacts nothing yet; InputError where nobody answers for the inventory."""
    confirm = progress.ask if sys.stdin.isatty() else None
    trusted.require(o.the_inventory, o.the_pod, confirm)
    return PodSession(
        o.the_pod,
        progress,
        accept_new_host_key=o.accept_new_host_key,
        allow_different_gpu=o.allow_different_gpu,
        confirm=confirm,
    )
