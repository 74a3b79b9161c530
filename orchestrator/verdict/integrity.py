"""What the agent saw around a stage that takes the credit from its evidence: tree, environment, modules, GPU."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Iterator, Mapping, NewType, Optional

from orchestrator.shared.schema import RULES
from orchestrator.shared.text import listing
from orchestrator.verdict import execution

if TYPE_CHECKING:
    from orchestrator.verdict.case import Case

Glob = NewType("Glob", str)
RULES[Glob] = lambda path: None if path.startswith("/") else "expected an absolute path, with * for any part of it"

# By what a record says of `elsewhere`.
_SENTENCES = {
    "code": "{name} came from {file}, neither the commit's nor the environment's (`outside` allows such places)",
    "tests": "tests were collected from {file}, which is not in the tree (`outside` allows such places)",
    "interpreter": "{name}, which is not the environment's Python, imported {file} of the tree",
}


def doubts(case: Case) -> Iterator[Optional[str]]:
    """Sentences, the weightiest first."""
    record = case.evidence
    changed = record["tree"]["changed"]
    if changed or not record["tree"]["ok"]:
        yield f"files of the commit were changed in the run's tree: {listing(changed)}"
    if record["tree"].get("rewritten"):
        yield f"code of the commit was written while it ran, and set back: {listing(record['tree']['rewritten'])}"
    if record["stray_before"]:
        yield f"an earlier stage left files in the tree that are not the commit's: {listing(record['stray_before'])}"
    if not record["environment_ok"]:
        which = f": {listing(record['environment_changed'])}" if record["environment_changed"] else ""
        yield f"the environment's installed files are not those that were recorded{which}"
    if not record["journal_ok"]:
        yield "the agent's journal was changed by something else than the agent"
    for wrong in record["unseen_sessions"]:
        told = "a pytest that it ran behind another program, where no outcome counts, had not simply passed: "
        yield f"{told if case.run.format == 1 else ''}{wrong}"
    for module in record["foreign_modules"]:
        is_copy = not module["file"].startswith("/")
        where = ", not from where the tree keeps it" if is_copy else ", outside the tree, and the commit has its own"
        yield f"module {module['name']} was imported from {module['file']}{where}"
    yield from _elsewhere(case)
    for line in record["escaped"]:
        yield f"a pytest ran out of the agent's sight: it printed {line!r}"
    yield from _gpu(case)
    yield from execution.doubts(case)
    if record["guarded"] is False:
        without_site = "Python ran with -S, which leaves out what tells the agent of it (run it without)"
        yield f"{without_site}, or its report was damaged: where its modules came from is not known"


def _elsewhere(case: Case) -> Iterator[str]:
    for found in case.evidence["elsewhere"]:
        if found["what"] == "interpreter" or not is_allowed(found["file"], case.expect):
            yield _SENTENCES[found["what"]].format(**found)


def is_allowed(file: str, expect: Mapping[str, Any]) -> bool:
    """Whether a stage may have code from there."""
    return any(_matches(file, pattern) for pattern in expect.get("outside") or [])


def _matches(file: str, pattern: str) -> bool:
    """The file itself, or a folder that it is in."""
    return fnmatchcase(file, pattern) or fnmatchcase(file, f"{pattern.rstrip('/')}/*")


def _gpu(case: Case) -> Iterator[Optional[str]]:
    use = case.evidence["gpu"]
    if use and use["disturbed"]:
        yield f"someone else used the GPU while it ran, or just after: {use['disturbed']}"
    if case.stage["exclusive"] and case.stage["cuda"]:
        if not use:
            yield "whether it had the GPU to itself was not recorded"
        if "device" not in case.expect and case.evidence["used_cuda"] is False:  # a plan before a device was owed
            yield "it wants a GPU for itself, and no Python of it has used CUDA"
