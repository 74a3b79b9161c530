"""All cases, by theme, and the table of them that the documents show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.honesty import (
    artifact_cases,
    check_cases,
    copy_cases,
    cuda_cases,
    environment_cases,
    oddity_cases,
    practice_cases,
    pytest_cases,
    route_cases,
    run_cases,
    runner_cases,
    sabotage_cases,
    shell_cases,
    since_cases,
    stand_in_cases,
    status_cases,
    tree_cases,
    unittest_cases,
    unrun_cases,
)
from tests.honesty.case import Case

THEMES: Mapping[str, Sequence[Case]] = {
    "Tests": pytest_cases.CASES,
    "Shells and other runners": [*shell_cases.CASES, *runner_cases.CASES],
    "Unittests and doctests": unittest_cases.CASES,
    "Exit codes that nothing depends on": status_cases.CASES,
    "Checks": check_cases.CASES,
    "Stand-ins, and what is dropped": stand_in_cases.CASES,
    "Everyday repositories": practice_cases.CASES,
    "What never ran": unrun_cases.CASES,
    "Tests that cannot fail": sabotage_cases.CASES,
    "Artifacts": artifact_cases.CASES,
    "Routes": route_cases.CASES,
    "The GPU": cuda_cases.CASES,
    "The tree": tree_cases.CASES,
    "Copies of the package in the tree": copy_cases.CASES,
    "The environment": environment_cases.CASES,
    "The run": run_cases.CASES,
    "Since the last passed run": since_cases.CASES,
    "Honest oddities": oddity_cases.CASES,
}
# How the lies of a theme are caught: by a `rule` about what they deliver or ask for, by the agent's `observation` of
# what ran, only by `sabotage`, running the tests again with wrong code, or by no more than a `note`.
CAUGHT: Mapping[str, str] = {
    **dict.fromkeys(("Artifacts", "Routes", "The run"), "rule"),
    **dict.fromkeys(("Tests", "Shells and other runners", "Checks", "Stand-ins, and what is dropped"), "observation"),
    **dict.fromkeys(("Exit codes that nothing depends on", "Unittests and doctests"), "observation"),
    **dict.fromkeys(("The GPU", "The tree", "Copies of the package in the tree", "The environment"), "observation"),
    **dict.fromkeys(("Everyday repositories", "What never ran"), "observation"),
    "Tests that cannot fail": "sabotage",
    "Since the last passed run": "note",
}
CASES: Sequence[Case] = [case for cases in THEMES.values() for case in cases]

_HEAD = """\
# What a run may pretend, and what it is called

Each row is a tiny repository and a runbook that `tests/honesty` runs by the whole road: commit, plan, agent, fetch,
judge. Beside each lie stands the same thing done honestly, which passes. This page is written by
`python -m tests.honesty`.

| caught by | how |
|---|---|
| rule | by what the stage delivers or asks for |
| observation | by what the agent saw running on the pod |
| sabotage | no rule can tell it from the truth; but its tests pass with wrong code too (`kills`, `mutants`) |
| note | by what the last passed run had; it changes no status, and the run says it |

## What only planted faults tell

Only what a test calls by the name that it has imported is observed to be a stand-in for the code under test. All else
is for `kills` and `mutants`:

- a subclass, a function that a fixture hands out, a method or another function that the code itself uses;
- a limit of numbers, and not of arrays, that is larger than they are (`assert abs(f(1.0) - g(1.0)) < 9`); what holds of
  right and wrong results alike (`out is not None`, `isfinite`, a shape), rounds both sides to one, or compares a result
  with what was made of it;
- two sides that are both made zero; star imports;
- values that the code under test itself has made: golden files (a doubt, where a session makes them beside its tests),
  snapshots (`--snapshot-update`), cases that are chosen by what passes. What the tests keep outside of the tree (in
  HOME, /tmp) and make anew where it is not there is not there while they run with a fault. Not so, outside of HOME,
  what an earlier stage or run has made (a doubt, also without `kills`, and below HOME where the tests' own code names
  the file), and what is read in another language than Python (HDF5, safetensors): then a planted fault is noticed by
  what the code had returned without it;
- what is left of two sides that differ: their signs, order, norm, sum or whole numbers, a mask's part of them, one
  element of each, or any (a doubt: `isclose(a, b).any()`), how many results there are (`len(results) == 3`), a field
  that is not compared (`field(compare=False)`), what is no NaN (`nanmax`), or on which side of the limit they are
  (`(a - b).max() < 1e-3`, without `abs`);
- a list of failures that stays empty, for nothing was tried; two iterators that somebody has used up; a part of
  nothing (`{}.items() <= result.items()`); an object that a method has made, and that is always true; a number that is
  -1 where nothing was found (`assert text.find("ok")`);
- a reference of the tests' own that calls the code under test (but for one in the place of the commit's), or an output
  that held what was expected before;
- what a conftest makes of the code under test without putting another function in its place: its defaults, its source
  as it is loaded, the files that it opens;
- a check that is tried again with a looser tolerance, an `or` that lets all pass
  (counted, where the comparison behind it never ran), a fixture or a helper that nothing
  asks for, steps of a feature that check nothing.

## What only a runbook's checks tell

What is written is believed where it is bad; where it is good, it is no more than words. Only `checks`, `lacks` and
`contains` of a runbook tell

- that old times were made up (a doubt: times that are all 0 or below, or all the same);
- that a count under `failed` is not 0, or that one row of many has failed;
- that figures are another device's than they say (a doubt: `cuda` beside times of a stage that used none);
- that a text speaks of a mismatch (a doubt: a last line that does; a difference above its limit of which a program or a
  test only speaks).

## What nobody is told of

- An exception that a program catches in its own file and only prints, or for which it computes by the reference what
  a kernel was to compute. Seen are comparisons of numpy's, pandas' and torch's `testing`, and what a Python or a
  shell returned. A doubt: an assertion's exception, a mistake of the tree's own (TypeError, NameError, AttributeError)
  after which a name gets another value, a kernel that the interpreter never ran for it, a module of the tree that
  cannot be imported, a program that ends with 0 for it.
- A bench that compares a kernel with itself (a doubt, where it says that no speedup is but 1, or speaks of Triton and
  launched none of its kernels), or with a baseline that was given more to do, or times sums in a loop of Python's own,
  another size than it says, a call that raises, the best of many, or what the clock says, not how long it took; one
  that writes seconds under `ms`. A doubt: where nothing is done between any two reads of the clock but to sleep, to
  name a function, to call one that only returns another, or to ask a cache.
- A test that was made weaker than it was in an earlier commit, and still checks something: another seed, zeros for
  data, both sides rounded. The report's notes tell of tests that are not there any more, of files in which fewer
  assertions ran, and of tests that compared fewer elements, with a larger tolerance or in other types, since the last
  passed run; a doubt: a difference above its limit, or an `allclose` that came out false, of which a test only speaks.
- A kernel that a variable, a default or a mistyped name has the code pass by, on a GPU, where no `routes` and no
  launches are owed (a doubt, where the interpreter runs kernels and what tests call leads to them by name), or in a
  program.
- A runner of the project's own that passes over a name which it does not know, or what a file elsewhere says is done.
- `pytest.raises(AssertionError)` around a comparison: that two things differ may be what is tested. A command that a
  test runs by click's runner, and that ends with 1, where the test reads what it printed.
- Tests outside of the folders that a project itself names (`testpaths`), where the command names none.
- Tests that compare what stands in a file of the commit, or what they have calculated themselves: that no code of the
  commit ran is right for many a stage.
- A bench that has read a few figures from the commit beside others (a doubt, where it has no other).
- An exception that a pool, a task or a library keeps, where it is no assertion's; a task that was cancelled before it
  came to its assertions.
- What a program makes of exit codes by a wrong sum where objects or other modules have a hand in it, or a script by a
  wrong comparison (`[ $rc -gt $max ] || max=$rc`); what another makes of one among its words (`report.py $rc`); one of
  `subprocess.call` that a pool calls itself. A doubt: what would be the same with 0 (`[ $? -ne 124 ]`,
  `exit $((rc / 2))`, `all(codes)`, `min(codes)`, `rc > 1`).
- Assertions that a compiler leaves out (`NDEBUG`); a check in a lambda that nobody calls; a backend of torch.compile
  that runs what it is given (`backend="eager"`).
- A check of a program below a flag that its command does not give, or a level of logging, where it prints that all is
  well; code that a program has from bytes of a file elsewhere, by `marshal` or `pickle`; a comparison by an operator
  that is a statement of a program (`a == b`: it may be there to be shown); what `python -i -c` drops; what a module
  or an executed text drops by more than one statement.
- A Makefile from outside the tree. A doubt: another program than a Python or a shell's script, and a file that a script
  reads in, unless they are installed or only set variables.
- A kernel that another process launches, or a fixture that keeps anything else, a `setup_method` above all, or hands
  out what a test reads and does not check, on other data than the test's, where nothing else is launched. A doubt: a
  fixture of whose value nobody makes anything. Without `routes`, a test for CUDA whose code fell back to the CPU, where
  another of its stage launches a kernel.
- A planted fault that only makes a test late, where the time comes by `datetime`, `os.times`, an alarm or what waits
  for a while (`Event.wait(1)`, `join(1)`, `result(timeout=1)`), or has become an array or a whole number.
- What a build (`install`) takes from elsewhere and compiles, or adds. A doubt: a module of the commit that it changes.
- An exit code of a program that a test's own shell drops (`python x.py || true`), where it stands for no failed
  assertion and no pytest: programs that fail as they should are what many tests start.
- Failures that a project itself declares to be none: `WILL_FAIL`, a cell's tags under pytest, an optional extension
  (a doubt: `success_codes` and `warn=True`).
- What a runbook itself names too little of: one test by its id, `--help`, `builds` that match nothing. A doubt: a make,
  tox or nox that ran nothing; a variable that no code asks for.
"""


def table() -> str:
    """The catalogue as Markdown."""
    return "\n".join([_HEAD, *(line for theme, cases in THEMES.items() for line in _section(theme, cases))])


def _section(theme: str, cases: Sequence[Case]) -> Iterator[str]:
    yield f"## {theme}\n"
    if all(case.honest is None for case in cases):
        yield from ("| honest, and `passed` | what it does |\n|---|---|", *(_row(case) for case in cases), "")
        return
    yield "| lie | what it pretends | what it is called | caught by | the honest one, `passed` |\n|---|---|---|---|---|"
    honest = {case.name: case for case in CASES}
    for case in (c for c in cases if c.honest):
        assert case.honest is not None
        called = f"`{case.status}`" if case.status else f"verdict `{case.right_verdict}`"
        if case.status and case.verdict:
            called = f"verdict `{case.verdict}`"
        by, twin = case.caught or CAUGHT[theme], _cell(honest[case.honest].pretends)
        yield f"| {case.name} | {_cell(case.pretends)} | {called} | {by} | {twin} |"
    yield ""


def _row(case: Case) -> str:
    return f"| {case.name} | {_cell(case.pretends)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
