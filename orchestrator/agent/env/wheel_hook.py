"""Builds the wheel of a project, in the Python that builds it, by what PEP 517 says of build backends.

Its argument is a JSON object; the answer, {"wheel": NAME} or {"lacks": REQUIREMENTS}, is written to its `answer`. What
is printed is the build's log.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as f:
        asked = json.load(f)
    os.chdir(asked["source"])
    sys.path[:0] = [os.path.abspath(folder) for folder in asked["backend_path"]]
    module, _, attributes = asked["backend"].partition(":")
    backend = importlib.import_module(module)
    for name in filter(None, attributes.split(".")):
        backend = getattr(backend, name)
    ask = getattr(backend, "get_requires_for_build_wheel", None)
    lacks = [text for text in (_apart(ask) if ask else ()) if text not in asked["known"]]
    said = {"lacks": lacks} if lacks else {"wheel": backend.build_wheel(asked["result"])}
    with open(asked["answer"], "w", encoding="utf-8") as f:
        json.dump(said, f)


def _apart(hook: Callable[[], Iterable[str]]) -> list[str]:
    """What a hook answers in a process of its own, as PEP 517 has it: some backends remember folders that they made."""
    reads, writes = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        with open(writes, "w", encoding="utf-8") as f:
            json.dump(list(hook()), f)
        sys.exit()
    os.close(writes)
    with open(reads, encoding="utf-8") as f:
        answer = f.read()
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
    return list(json.loads(answer))


if __name__ == "__main__":
    main()
