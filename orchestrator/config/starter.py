"""The pods.yaml and the runbook that a repository begins with, as text with comments."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from orchestrator.config.programs import Check
from orchestrator.config.pytest_files import is_test_file
from orchestrator.config.survey import MOST_BENCHES, Survey

NAME = "validate"
SCHEMAS = ".schema"
"""Beside the runbooks: what editors complete and check by."""
_MODELINE = "# yaml-language-server: $schema="
_PAIRED = ("torch", "triton")
_OPTIONAL = "flash-attn"
_MOST_REASONS = 8
_LINE = 116
_NO_TEXT = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")  # as YAML reads them
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")

PODS = f"""\
{_MODELINE}runbooks/{SCHEMAS}/pods.json
# Where each pod is, and what it promises; `nsa-pod doctor --pod NAME` holds it to that.
pods:
  local: {{transport: local}}      # this machine, by the same road as a rented GPU
  # my-gpu:
  #   host: 203.0.113.10         # or ssh_config: an alias of your own ssh configuration
  #   port: 22
  #   user: root
  #   identity_file: ~/.ssh/id_ed25519
  #   gpu: RTX 4090              # a promise: another model is refused
  #   cost_per_hour: 0.40
# default: my-gpu                # for commands without --pod
"""


def runbook(projects: Sequence[Survey]) -> str:
    """A runbook that fits what was found of each project."""
    names = [_plain(found.name) for found in projects]
    if len(set(names)) < len(names):  # what tells them apart is where they are
        names = [_plain(found.project or "rest") for found in projects]
    suffixes = [f"_{name}" if len(projects) > 1 else "" for name in names]
    stages = [_stages(*each) for each in zip(projects, suffixes, strict=True)]
    return "\n".join([*_head(projects), "stages:", *_separated(stages)]) + "\n"


def _head(projects: Sequence[Survey]) -> Iterator[str]:
    yield f"{_MODELINE}{SCHEMAS}/runbook.json"
    names = ", ".join(found.name for found in projects)
    yield f"# What `nsa-pod validate` runs of {names}, and what counts as evidence."[:_LINE]
    yield "# `nsa-pod check` says what is wrong with it."
    yield f"name: {NAME}"
    if any(found.needs_cuda for found in projects):
        yield "requires: [cuda]      # its extension is compiled for CUDA alone; without a GPU every stage is blocked"
    yield from _environment(projects)
    yield from _installation(projects)
    yield "limits: {wall: 30m, silence: 10m}      # of each stage: all in all, and without a line of output"


def _environment(projects: Sequence[Survey]) -> Iterator[str]:
    needs: dict[str, str] = {}
    for found in projects:
        for text in (*found.needs, *(found.build_needs if _builds_in_place(found) else ())):
            needs.setdefault(_name(text), text)
    modules = {name for found in projects for name in found.modules}
    paired = [name for name in _PAIRED if name in modules or name in needs]
    own = {canonicalize_name(found.name) for found in projects}
    others = [text for name, text in needs.items() if name not in (*_PAIRED, _OPTIONAL, "pytest", *own)]
    extra = [needs.get("pytest", "pytest"), *others]
    yield "environment:"
    if paired:
        yield f"  requires: [{', '.join(paired)}]      # a pair that fits the pod's driver; never from PyPI's newest"
    if _OPTIONAL in modules or _OPTIONAL in needs:
        yield f"  optional: [{_OPTIONAL}]"
    yield from _folded("  extra: [", map(json.dumps, extra), "]", 10)
    guessed = {text for found in projects for text in found.guessed}
    yield from _of_packages(
        "guessed by what tests and benches import and use", [text for text in others if text in guessed]
    )
    peers = [text for found in projects for text in found.of_benches]
    yield from _of_packages("left out, as only benches for CUDA import them", peers)
    unread = [text for found in projects for text in found.unread]
    yield from _of_packages("left out, as they are not on an index", unread)
    unnamed = [text for found in projects for text in found.unnamed if _name(text) not in needs]
    yield from _of_packages("left out, as no test names them", unnamed)


def _name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def _of_packages(what: str, texts: Iterable[str]) -> Iterator[str]:
    told = "".join(char if char.isprintable() else " " for char in "; ".join(dict.fromkeys(texts)))
    if told:
        yield f"  # {what}: {told}"[:_LINE]


def _installation(projects: Sequence[Survey]) -> Iterator[str]:
    built = [found.project or "." for found in projects if found.project is not None]
    if built:
        end = "]      # built from the commit, over the environment"
        yield from _folded("install: [", map(json.dumps, built), end, 10)
    for found in projects:
        if found.project is None and found.packages:
            yield f"env: {{PYTHONPATH: {json.dumps('/'.join(filter(None, ('{tree}', found.source))))}}}"


def _separated(groups: Iterable[Iterable[str]]) -> Iterator[str]:
    for number, lines in enumerate(groups):
        yield from [""] if number else []
        yield from lines


def _stages(found: Survey, suffix: str) -> Iterator[str]:
    """The stages of one project, whose names end with this."""
    where = [f"    cwd: {_word(found.project)}"] if found.project else []
    if found.tests:
        yield from _tests(found, suffix, where)
    elif found.other_tests:
        yield from _other_tests(found, suffix, where)
    elif not found.checks:
        yield from _import(found, suffix, where)
    groups = [[check for check in found.checks if check.cuda == cuda] for cuda in (False, True)]
    for number, checks in enumerate(filter(None, groups)):
        yield from [""] if number or found.tests or found.other_tests else []
        yield from _checks(checks, found, suffix, where)
    names: set[str] = set()
    for bench in found.benches[:MOST_BENCHES]:
        stem = PurePosixPath(bench).stem
        plain = _plain(stem if stem.lower().startswith("bench") else f"bench_{stem}") + suffix
        names.add(name := plain if plain not in names else f"{plain}_{len(names)}")
        yield ""
        yield from _bench(name, bench, found)
    if len(found.benches) > MOST_BENCHES:
        yield f"  # and so on: {', '.join(found.benches[MOST_BENCHES:])}"[:_LINE]


def _builds_in_place(found: Survey) -> bool:
    """Whether its compiled modules have to be built into the tree: tests inside a package of the top folder import it
    from there, and no way to call pytest makes them take the installed one.
    """
    return bool(found.extension and not found.source and found.build_needs and any(_is_inside(found, found.tests)))


def _build(found: Survey, suffix: str, where: list[str]) -> Iterator[str]:
    yield "  # The tests stand inside the package, and import it from the tree: what is compiled has to be there."
    yield f"  - name: build{suffix}"
    yield from where
    yield "    run: [python, setup.py, build_ext, --inplace]"
    folder = f"{found.project}/" if found.project else ""
    yield f"    builds: [{', '.join(json.dumps(f'{folder}{package}/**/*.so') for package in found.packages)}]"
    yield f"    expect: {{artifacts: [{{path: build{suffix}.txt, from: stdout, contains: [running build_ext]}}]}}"
    yield ""


def _tests(found: Survey, suffix: str, where: list[str]) -> Iterator[str]:
    in_place = _builds_in_place(found)
    if in_place:
        yield from _build(found, suffix, where)
    yield f"  - name: tests{suffix}"
    yield from where
    yield from [f"    needs: [build{suffix}]"] if in_place else []
    yield from _pytest(found, found.tests)
    yield "    expect:"
    yield "      tests:"
    yield "        min_passed: 1      # raise it: fewer passes are not a pass"
    yield "        # A skip, an xfail or a deselection is not a pass either, unless its reason matches one of these."
    has_gpu_stage = bool(found.cuda_tests and not found.needs_cuda)
    if has_gpu_stage:
        yield f"        # CUDA's tests may be skipped here; the stage `gpu{suffix}` owes them."
    yield f"        allow_skips: [{json.dumps('(?i)cuda|gpu|triton') if has_gpu_stage else ''}]"
    if found.skips:
        yield "        # Reasons that stand in the tests:"
        yield from (f"        #   {_pattern(reason)}" for reason in found.skips[:_MOST_REASONS])
    yield from _kills(found)
    if has_gpu_stage:
        files = [str(PurePosixPath(file).relative_to(found.project or ".")) for file in found.cuda_tests]
        yield ""
        yield f"  - name: gpu{suffix}"
        yield from where
        yield "    when: [cuda]      # left out, and said so, where there is no GPU"
        yield from _pytest(found, files)
        yield "    expect:"
        yield "      tests: {min_passed: 1}"
        yield "      device: cuda      # kernels must have been launched on the GPU"
        yield from _kills(found)


def _kills(found: Survey) -> Iterator[str]:
    if found.functions:
        yield "      # Can the tests fail? They run again while each of these returns wrong numbers: one has to notice."
        yield "      # kills:"
        yield from (f"      #   - {json.dumps(name)}" for name in found.functions)


def _other_tests(found: Survey, suffix: str, where: list[str]) -> Iterator[str]:
    yield "  # No tests for pytest were found. The closing lines of other runners are read too."
    yield f"  - name: tests{suffix}"
    yield from where
    yield "    shell: |"
    yield from (f"      {line}" for line in found.other_tests)
    yield f"    expect: {{artifacts: [{{path: tests{suffix}.txt, from: stdout}}]}}"


def _checks(checks: Sequence[Check], found: Survey, suffix: str, where: list[str]) -> Iterator[str]:
    """Of programs that need CUDA, or of those that do not."""
    name = f"checks_gpu{suffix}" if checks[0].cuda else f"checks{suffix}"
    yield "  # Programs that check something, of which pytest collects nothing. The first that fails ends the stage."
    yield f"  - name: {name}"
    yield from where
    yield from ["    when: [cuda]      # left out, and said so, where there is no GPU"] if checks[0].cuda else []
    yield "    shell: |"
    inside = (str(PurePosixPath(check.path).relative_to(found.project or ".")) for check in checks)
    yield from (f"      python {shlex.quote(path)}" for path in inside)
    yield "      echo checked      # only where none has failed"
    yield f"    expect: {{artifacts: [{{path: {name}.txt, from: stdout, contains: [checked]}}]}}"


def _pytest(found: Survey, paths: Sequence[str]) -> Iterator[str]:
    """`python -m pytest` imports a package of the top folder: if it is installed, without what its build makes."""
    inside = list(_is_inside(found, paths))
    if not found.is_made or found.source or not found.packages or _builds_in_place(found):
        begin = "python, -m, pytest, -q, "
    elif any(inside):
        yield "    # The tests stand inside the package, and its build makes a part of it: those that it installs run."
        begin = "pytest, -q, --pyargs, "
        paths = [_module(path) if is_inside else path for path, is_inside in zip(paths, inside, strict=True)]
    else:
        begin = f"pytest{f', --import-mode={found.import_mode}' if found.import_mode else ''}, -q, "
    yield from _folded(f"    run: [{begin}", map(_word, paths), "]", 10)


def _is_inside(found: Survey, paths: Iterable[str]) -> Iterator[bool]:
    """Of each, whether it lies in a package of the top folder."""
    return (PurePosixPath(path).parts[0] in found.packages for path in paths)


def _module(path: str) -> str:
    return ".".join(PurePosixPath(path.removesuffix(".py")).parts)


def _import(found: Survey, suffix: str, where: list[str]) -> Iterator[str]:
    """Of a repository without tests: that it can be imported, or compiled, is all that is known to ask."""
    if found.scripts and not found.packages:
        yield "  # No tests were found: a stage that only shows that the scripts can be compiled. Better: run them."
        yield f"  - name: compile{suffix}"
        yield from where
        yield "    run: [python, -m, compileall, -f, .]"
        yield f"    expect: {{artifacts: [{{path: compile{suffix}.txt, from: stdout, contains: [Compiling]}}]}}"
        return
    if not found.packages:
        yield "  # Nothing was found that can be run: this is blocked until there is a test."
        yield f"  - name: tests{suffix}"
        yield from where
        yield "    run: [python, -m, pytest, -q]"
        return
    package = found.packages[0]
    yield "  # No tests were found: a stage that only shows that the code can be imported. Better: pytest."
    yield f"  - name: import{suffix}"
    yield from where
    yield f"    run: [python, -c, \"import {package}; print('imported', {package}.__name__)\"]"
    yield f"    expect: {{artifacts: [{{path: import{suffix}.txt, from: stdout, contains: [imported {package}]}}]}}"


def _bench(name: str, bench: str, found: Survey) -> Iterator[str]:
    path = PurePosixPath(bench)
    yield f"  - name: {name}"
    yield "    required: false      # does not decide the verdict until you say so"
    if bench in found.cuda_benches:
        yield "    when: [cuda]"
        yield "    exclusive: gpu      # refused while somebody else uses it"
    if is_test_file(path):
        yield f"    run: [python, -m, pytest, -q, {_word(bench)}]"
    else:
        if found.wanted[bench]:
            yield f"    # It does not run without {' and '.join(found.wanted[bench])}: add what you would type."
        yield f"    run: [python, {_word(bench)}]"
        yield "    # One that writes a table can be held to it: {path: x.csv, kind: csv, columns: [...], checks: [...]}"
        yield f"    expect: {{artifacts: [{{path: {name}.txt, from: stdout}}]}}"


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)


def _pattern(text: str) -> str:
    """A regular expression for a text, as YAML has it."""
    return json.dumps(_SPECIAL.sub(lambda match: f"\\{match[0]}", text))


def _word(text: str) -> str:
    is_plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text) and text.lower() not in _NO_TEXT
    return text if is_plain else json.dumps(text)


def _folded(begin: str, items: Iterable[str], end: str, indent: int) -> Iterator[str]:
    """A YAML list on as many lines as it takes."""
    line = begin
    for number, item in enumerate(items):
        more = f", {item}" if number else item
        if len(line) + len(more) > _LINE:
            yield f"{line},"
            line = " " * indent + item
        else:
            line += more
    yield line + end
