"""What is wrong with the stages of a runbook on one commit, as far as it is known before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from orchestrator.config.commands import mentions_pytest
from orchestrator.config.runbook import RunbookFile, Stage
from orchestrator.config.yamlfile import Location
from orchestrator.plan.absent import Tree, absent_paths, in_tree
from orchestrator.plan.plan import Mutation
from orchestrator.shared.text import alternatives, with_commit
from orchestrator.text import close_to, listing

_FROM_TREE = "tree:"
_OF_A_SHELL = ("|", "||", "&&", "|&", "2>&1", "&>")


def findings(file: RunbookFile, tree: Tree, mutants: Mapping[str, Mutation]) -> list[str]:
    """Each with its place in the runbook: stages that will be blocked or invalid whatever happens."""
    return [
        f"{file.document.place(('stages', number, *at))} {sentence}"
        for number, stage in enumerate(file.runbook.stages)
        for at, sentence in _of_stage(stage, file, tree, mutants)
    ]


def _of_stage(
    stage: Stage, file: RunbookFile, tree: Tree, mutants: Mapping[str, Mutation]
) -> Iterator[tuple[Location, str]]:
    words = stage.run or []
    shells = next((number for number, word in enumerate(words) if word in _OF_A_SHELL), len(words))
    if shells < len(words):
        said = f"{words[shells]} is a shell's, and `run` has none: expected the line under `shell`"
        yield ("run", shells), said
    line = words[0] if words and _is_line(words[0], stage, tree) else None
    if line:
        said = f"{line!r} is taken for one program's name: expected each word by itself, [{listing(line.split())}]"
        yield ("run", 0), said
    for path in absent_paths(stage, file.runbook, tree):
        if path in (line, *words[shells:]):
            continue
        yield _place_of(path, stage, tree.commit), f"{path} is not in commit {tree.commit[:7]}{_near(path, tree)}"
    if not _asks_for_evidence(stage):
        said = "expected artifacts, or the tests of a pytest that it runs"
        yield ("expect",) if stage.expect else (), f"stage {stage.name!r} asks for no evidence: {said}"
    for number, artifact in enumerate(stage.expect.get("artifacts", ())):
        source = with_commit(artifact.get("from") or "", tree.commit)
        if source.startswith(_FROM_TREE) and source[len(_FROM_TREE) :] in tree.files:
            name = source[len(_FROM_TREE) :]
            said = f"{name} is in commit {tree.commit[:7]}: expected a file that only the stage makes"
            yield ("expect", "artifacts", number, "from"), said
    for number, mutant in enumerate(stage.expect.get("mutants", ())):
        made = mutants.get(mutant["patch"])
        if made and made.wrong:
            said = f"{mutant['patch']} does not apply to commit {tree.commit[:7]}: {made.wrong}"
            yield ("expect", "mutants", number, "patch"), said


def _is_line(program: str, stage: Stage, tree: Tree) -> bool:
    """Whether it is a command with its arguments, and no path that has blanks in it."""
    first, *more = program.split() or [""]
    return bool(more) and "/" not in first and in_tree(program, stage, tree.commit) not in tree.files


def _asks_for_evidence(stage: Stage) -> bool:
    """Not so a command without `expect`, unless it may be one that starts a pytest, whose tests then count."""
    if stage.is_pytest or stage.expect.get("artifacts") or "tests" in stage.expect:
        return True
    return mentions_pytest(stage.argv)


def _place_of(path: str, stage: Stage, commit: str) -> Location:
    """Where the stage names a path of the tree."""
    if path == stage.cwd:
        return ("cwd",)
    for key, words in (("paths", stage.paths), ("run", stage.run or [])):
        for number, word in enumerate(words):
            if in_tree(word.split("::")[0], stage, commit) == path:
                return key, number
    return ("shell",)


def _near(path: str, tree: Tree) -> str:
    """Files of that name elsewhere, else such as are called nearly so in its folder, as a question."""
    name, folder = PurePosixPath(path).name, str(PurePosixPath(path).parent)
    found = sorted(file for file in tree.files if PurePosixPath(file).name == name)[:3]
    if not found:
        found = close_to(path, [file for file in tree.files if str(PurePosixPath(file).parent) == folder])
    return f": did you mean {alternatives(found)}?" if found else ""
