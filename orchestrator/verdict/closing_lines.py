"""What runners of tests other than pytest say at their end: how many tests they ran, and what failed or was skipped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Iterator, List, Optional, Tuple

from orchestrator.verdict.counted_tests import counted
from orchestrator.verdict.summary_lines import closing_summaries

_UNITTEST = re.compile(
    r"^-{70}\nRan (?P<ran>\d+) tests? in [\d.]+m?s\n\n?"
    r"(?P<end>(?:OK|FAILED|NO TESTS RAN)(?: \((?P<counts>[^()\n]*)\))?)$",
    re.MULTILINE,
)
_DOCTEST = re.compile(r"^\*\*\*Test Failed\*\*\* (?P<failed>\d+) failures?\b.*$", re.MULTILINE)
_CTEST = re.compile(
    r"^\d+% tests passed, (?P<failed>\d+) tests? failed out of (?P<total>\d+)$|^No tests were found!!!$"
    r"|^(?P<listed>Total Tests: \d+)$",
    re.MULTILINE,
)
_CTEST_AFTER = re.compile(r"Label Time|Total Test time|The following tests|Errors while|\s")
_CTEST_SKIPS = re.compile(r"^\s+\d+ - (?P<name>.+) \((?P<why>Skipped|Disabled|Not Run)\)$", re.MULTILINE)
_GO = re.compile(
    r"^(?:(?P<ok>ok)  \t(?P<name>\S+)\t(?:(?P<cached>\(cached\))|[\d.]+s)(?P<none>.*\[no tests to run\])?.*|"
    r"(?P<fail>FAIL)(?:\t(?P<failed>\S+).*)?|\?   \t(?P<empty>\S+)\t\[no test files\])$",
    re.MULTILINE,
)
_GO_SKIPS = re.compile(r"^\s*--- SKIP: (?P<name>\S+) \([\d.]+s\)$", re.MULTILINE)
_BAZEL = re.compile(
    r"^//\S+ +(?P<cached>\(cached\) )?(?P<end>PASSED|FLAKY|SKIPPED|FAILED|TIMEOUT|NO STATUS)\b.*$", re.MULTILINE
)
_CARGO = re.compile(
    r"^test result: (?P<end>ok|FAILED)\. (?P<passed>\d+) passed; (?P<failed>\d+) failed; (?P<ignored>\d+) ignored;.*$",
    re.MULTILINE,
)
_CARGO_SKIPS = re.compile(r"^test (?P<name>.+) \.\.\. ignored(?:, (?P<why>.+))?$", re.MULTILINE)
_MAKE = re.compile(r"^g?make: (?:Nothing to be done for [`'](\w+)'|[`'](\w+)' is up to date)\.$", re.MULTILINE)
_GTEST = re.compile(r"^\[={10}\] (?P<ran>\d+) tests? from \d+ test (?:suites?|cases?) ran\b.*$", re.MULTILINE)
_GTEST_FAILED = re.compile(r"^\[  FAILED  \] \d+ tests?, listed below:$", re.MULTILINE)
_GTEST_LEFT = re.compile(r"^(?:\[  SKIPPED \] \S+(?= \(\d+ ms\))|  YOU HAVE \d+ DISABLED TESTS?)", re.MULTILINE)
_CATCH2 = re.compile(
    r"^(?:All tests passed \((?P<ran>\d+) assertions? in \d+ test cases?\)|No tests? (?:cases )?(?:ran|matched).*)$",
    re.MULTILINE,
)
_MESON = re.compile(
    r"^Ok: +(?P<ok>\d+) *\n(?P<others>(?:[A-Z][a-z]+(?: [A-Z][a-z]+)?: +\d+ *(?:\n|\Z))+)"
    r"|^No (?:suitable )?tests defined\.$",
    re.MULTILINE,
)
_MESON_AFTER = re.compile(r"Full log written to ")
_MESON_FAILURES = ("Fail", "Timeout", "Unexpected Pass")
_MESON_SKIPS = re.compile(r"^ *\d+/\d+ (?P<test>.+?) +SKIP\b", re.MULTILINE)
_PROVE = re.compile(r"^Files=\d+, Tests=(?P<ran>\d+), .*\n(?P<end>Result: (?:PASS|FAIL|NOTESTS))$", re.MULTILINE)
_PROVE_SKIPS = re.compile(r"^\S+ \.+ skipped: (?P<why>.+)$", re.MULTILINE)
_TAP_PLAN = re.compile(r"^1\.\.(?P<planned>\d+)(?: +# *(?P<why>\S.*))?$", re.MULTILINE)
_TAP = re.compile(
    r"^(?P<not>not )?ok\b(?: +\d+)?(?P<name>[^#\n]*)(?:# *(?P<directive>(?:todo|skip)\b.*))?$",
    re.MULTILINE | re.IGNORECASE,
)
_TOX = re.compile(r"^  (?P<name>\S+): (?P<end>OK|SKIP|FAIL|IGNORED FAIL)\b.*\([\d.]+(?: seconds|=).*\)$", re.MULTILINE)
_TOX_IGNORED = re.compile(
    r"^\S+: exit \d+ \([\d.]+ seconds\) [^\n]*> (?P<command>\S*(?:python|pytest|test|nox)[^\n]*) pid=\d+\n"
    r"\S+: command failed but is marked ignore outcome",
    re.MULTILINE,
)
_NOX = re.compile(
    r"^nox > Session (?P<name>.+?) (?:was (?P<end>\w+)|(?P<skipped>skipped)\b:? ?(?P<why>.*?))\.?$", re.MULTILINE
)
# compute-sanitizer and valgrind, whose exit codes are the program's; UndefinedBehaviorSanitizer, which goes on.
_SANITIZERS = re.compile(
    r"^=+(?:\d+==)? +(?:ERROR SUMMARY: (?!0 errors)\d+ errors?|\w+ SUMMARY: (?!0 hazards)\d+ hazards?)\b.*$"
    r"|^\S+:\d+:\d+: runtime error: .+$",
    re.MULTILINE,
)
_MAKE_TESTS = ("test", "tests", "check")
_UNITTEST_SKIPS = re.compile(r"^(?P<name>.+) \.\.\. skipped '(?P<why>.*)'$", re.MULTILINE)


@dataclass(frozen=True)
class Closing:
    """What a runner says at its end: how many tests it ran, what failed, as a clause, and what was skipped."""

    runner: str
    ran: int
    failed: Optional[str] = None
    skipped: Tuple[str, ...] = ()


def is_named(runner: str, command: str) -> bool:
    """Whether a command names the runner."""
    return runner in _NAMES and re.search(_NAMES[runner], command) is not None


def read(text: str, everywhere: Callable[[str], bool]) -> List[Closing]:
    """The closings in what a stage printed: all of a runner that it names (`everywhere`), else the last lines'."""
    found: List[Closing] = []
    for runner, parse in _PARSERS:
        found += parse(text, everywhere(runner))
    return found


def _unittest(text: str, everywhere: bool) -> Iterator[Closing]:
    skipped = [m["why"] for m in _UNITTEST_SKIPS.finditer(text)]
    for match in _that_close(_UNITTEST, text, everywhere):
        counts = dict(re.findall(r"([a-z ]+)=(\d+)", match["counts"] or ""))
        number = int(counts.get("skipped", 0))
        reasons = skipped[:number] if len(skipped) >= number else [match["end"]] * number
        reasons += [f"xfail: {match['end']}"] * int(counts.get("expected failures", 0))
        yield Closing("unittest", int(match["ran"]), match["end"] if match["end"].startswith("FAILED") else None,
                      tuple(reasons))  # fmt: skip


def _doctest(text: str, everywhere: bool) -> Iterator[Closing]:
    """It says nothing of tests that pass."""
    for match in _DOCTEST.finditer(text):
        yield Closing("doctest", int(match["failed"]), match[0])


def _ctest(text: str, everywhere: bool) -> Iterator[Closing]:
    skipped = tuple(f"{m['why']}: {m['name']}" for m in _CTEST_SKIPS.finditer(text))
    found = _that_close(_CTEST, text, everywhere, after=_CTEST_AFTER)
    for match in [m for m in found if not m["listed"]] or found:
        failed = int(match["failed"] or 0)
        yield Closing("ctest", int(match["total"] or 0), match[0] if failed else None, skipped)


def _go(text: str, everywhere: bool) -> Iterator[Closing]:
    lines = list(_GO.finditer(text))
    if any(line["ok"] or line["failed"] or line["empty"] for line in lines):  # it may be another's `FAIL`
        failed = next((m[0] for m in lines if m["fail"]), None)
        ran = sum(bool(m["ok"] and not (m["none"] or m["cached"])) or bool(m["fail"]) for m in lines)
        skipped = [m[0].strip() for m in _GO_SKIPS.finditer(text)] + _cached(lines)
        yield Closing("go", ran, failed, tuple(skipped))


def _bazel(text: str, everywhere: bool) -> Iterator[Closing]:
    lines = list(_BAZEL.finditer(text))
    if lines:
        failed = next((m[0] for m in lines if m["end"] not in ("PASSED", "FLAKY", "SKIPPED")), None)
        skipped = [*_cached(lines), *(" ".join(m[0].split()) for m in lines if m["end"] == "SKIPPED")]
        yield Closing("bazel", len(lines) - len(skipped), failed, tuple(skipped))


def _cached(lines: "List[re.Match[str]]") -> List[str]:
    """Those that a runner has not run, for it has found what an earlier run of them said."""
    return [" ".join(m[0].split()) for m in lines if m["cached"]]


def _cargo(text: str, everywhere: bool) -> Iterator[Closing]:
    lines = list(_that_close(_CARGO, text, everywhere))
    if lines:
        failed = next((m[0] for m in lines if m["end"] == "FAILED" or int(m["failed"])), None)
        ignored = sum(int(m["ignored"]) for m in lines)
        reasons = [m["why"] or m[0] for m in _CARGO_SKIPS.finditer(text)]
        reasons = reasons if len(reasons) == ignored else [lines[-1][0]] * ignored
        yield Closing("cargo", sum(int(m["passed"]) + int(m["failed"]) for m in lines), failed, tuple(reasons))


def _make(text: str, everywhere: bool) -> Iterator[Closing]:
    """It found its tests made, by a file that says so."""
    if any((match[1] or match[2]) in _MAKE_TESTS for match in _MAKE.finditer(text)):
        yield Closing("make", 0)


def _gtest(text: str, everywhere: bool) -> Iterator[Closing]:
    for run in text.split("[==========] Running ")[1:]:
        match = _GTEST.search(run)
        if match:
            left = [m[0].strip() for m in _GTEST_LEFT.finditer(run)]
            failed = _GTEST_FAILED.search(run)
            ran = int(match["ran"]) - sum("SKIPPED" in line for line in left)
            yield Closing("gtest", ran, failed[0] if failed else None, tuple(left))


def _catch2(text: str, everywhere: bool) -> Iterator[Closing]:
    for match in _that_close(_CATCH2, text, everywhere):
        yield Closing("catch2", int(match["ran"] or 0))


def _meson(text: str, everywhere: bool) -> Iterator[Closing]:
    for match in _that_close(_MESON, text, everywhere, after=_MESON_AFTER):
        counts = {name: int(number) for name, number in re.findall(r"(.+): +(\d+)", match["others"] or "")}
        failed = next((f"{name}: {counts[name]}" for name in _MESON_FAILURES if counts.get(name)), None)
        skipped = [m["test"] for m in _MESON_SKIPS.finditer(text)] or ["Skipped"] * counts.get("Skipped", 0)
        skipped += ["xfail: Expected Fail"] * counts.get("Expected Fail", 0)
        ran = int(match["ok"] or 0) + sum(counts.values()) - counts.get("Skipped", 0)
        yield Closing("meson", ran, failed, tuple(skipped))


def _prove(text: str, everywhere: bool) -> Iterator[Closing]:
    skipped = tuple(m["why"] for m in _PROVE_SKIPS.finditer(text))
    for match in _that_close(_PROVE, text, everywhere):
        yield Closing("prove", int(match["ran"]), match["end"] if "FAIL" in match["end"] else None, skipped)


def tap(text: str, everywhere: bool = True) -> Iterator[Closing]:
    """The Test Anything Protocol: of bats, prove, node and others."""
    plan = _TAP_PLAN.search(text)
    if plan is None:
        return
    lines = list(_TAP.finditer(text))
    planned, named = int(plan["planned"]), [line for line in lines if line["directive"]]
    failed = next((line[0] for line in lines if line["not"] and not line["directive"]), None)
    if not lines and planned:
        return  # it is another range
    if len(lines) < planned:
        failed = failed or f"{plan[0]}, and {len(lines)} of them ran"
    skipped = [line["directive"].strip() for line in named]
    skipped += [plan["why"]] if not planned and plan["why"] else []
    yield Closing("tap", len(lines) - len(named), failed, tuple(skipped))


def _tox(text: str, everywhere: bool) -> Iterator[Closing]:
    lines = list(_TOX.finditer(text))
    if not lines:
        return
    ignored = _TOX_IGNORED.search(text)
    failed = next((m[0].strip() for m in lines if "FAIL" in m["end"]), ignored and f"{ignored['command']} failed")
    skipped = tuple(m[0].strip() for m in lines if m["end"] == "SKIP")
    yield Closing("tox", len(lines) - len(skipped), failed, skipped)


def _nox(text: str, everywhere: bool) -> Iterator[Closing]:
    lines = list(_NOX.finditer(text))
    if lines:
        skipped = tuple(m["why"] or m[0] for m in lines if m["skipped"])
        yield Closing("nox", len(lines) - len(skipped), None, skipped)


def _sanitizer(text: str, everywhere: bool) -> Iterator[Closing]:
    """What was found in a program that went on."""
    match = _SANITIZERS.search(text)
    if match:
        yield Closing("the sanitizer", 1, match[0])


def _counted(text: str, everywhere: bool) -> Iterator[Closing]:
    for said in counted(text):
        yield Closing(said.runner, said.ran, said.text if said.failed else None, (said.text,) * said.skipped)


def _counts(text: str, everywhere: bool) -> Iterator[Closing]:
    """Any that closes by counting its tests."""
    for line in closing_summaries(text):
        skipped = (line.text,) if line.skipped else ()
        yield Closing("the runner", line.ran, line.text if line.failed else None, skipped)


def _that_close(
    pattern: "re.Pattern[str]", text: str, everywhere: bool, after: "Optional[re.Pattern[str]]" = None
) -> List["re.Match[str]"]:
    """All matches, or only one that nothing follows but blank lines, and such as begin like `after`."""
    found = list(pattern.finditer(text))
    if everywhere or not found:
        return found
    rest = text[found[-1].end() :].split("\n")
    return found[-1:] if all(not line.strip() or (after and after.match(line)) for line in rest) else []


_PARSERS: List[Tuple[str, Callable[[str, bool], Iterator[Closing]]]] = [
    ("unittest", _unittest),
    ("doctest", _doctest),
    ("ctest", _ctest),
    ("go", _go),
    ("bazel", _bazel),
    ("cargo", _cargo),
    ("make", _make),
    ("gtest", _gtest),
    ("catch2", _catch2),
    ("meson", _meson),
    ("prove", _prove),
    ("tap", tap),
    ("tox", _tox),
    ("nox", _nox),
    ("sanitizer", _sanitizer),
    ("", _counted),
    ("", _counts),
]
_NAMES = {
    "unittest": r"\bunittest\b|\bnose2?\b|\bnosetests",
    "doctest": r"\bdoctest\b",
    "ctest": r"\bctest\b",
    "go": r"\bgo\s+test\b|\bgo\s.*\btest\b",
    "make": r"\bmake\b",
    "meson": r"\bmeson\s+test\b",
    "prove": r"\bprove\b",
    "cargo": r"\bcargo\b.*\btest\b",
}
