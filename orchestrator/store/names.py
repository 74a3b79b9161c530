"""What a pod is called in the laptop's store: by its own name and the inventory that it stands in."""

from __future__ import annotations

import hashlib
import re

from orchestrator.config.inventory import Pod


def alias(pod: str) -> str:
    """The pod's name as a Host pattern and a file name: itself if it is plain, else made plain and told apart by a
    hash. Two inventories may have a pod of one name, and older stores knew no more than this.
    """
    slug = re.sub(r"[^a-z0-9._-]", "_", pod.lower()).lstrip("-")
    return slug if slug == pod else f"{slug}-{_short(pod)}"


def key_of(pod: Pod) -> str:
    """The pod's own key in the store; the alias alone where it stands in no file."""
    return f"{alias(pod.name)}@{_short(pod.inventory)}" if pod.inventory else alias(pod.name)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]
