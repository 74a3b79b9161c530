"""Programs whose exit code is 0 whatever their `main` returns."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.evidence.dropped_status import main_that_drops

GUARD = "if __name__ == '__main__':\n    "
MAIN = "def main():\n    if differs():\n        return 1\n    return 0\n"
ONLY_1 = "def main():\n    if differs():\n        return 1\n    print('same')\n"


@pytest.mark.parametrize(
    ("source", "drops"),
    [
        (MAIN + "main()\n", True),
        (MAIN + GUARD + "main()\n", True),
        (ONLY_1 + GUARD + "main()\n", True),
        ("def main():\n    return 1 if differs() else 0\nmain()\n", True),
        (MAIN.replace("main", "check") + GUARD + "check()\n", True),
        (MAIN + GUARD + "sys.exit(main())\n", False),
        (MAIN + GUARD + "raise SystemExit(main())\n", False),
        (MAIN + GUARD + "status = main()\n    sys.exit(status)\n", False),
        (MAIN + GUARD + "main()\n    report()\n", False),
        (ONLY_1.replace("main", "check") + "check()\n", False),
        ("def main():\n    return -1 if differs() else 0\nmain()\n", True),
        ("def save(x):\n    return 1 if x else 0\nsave('x')\n", False),
        ("def fib(n):\n    return 0 if n else 1\nif len(sys.argv):\n    fib(3)\n", False),
        ("def main():\n    return 0\nmain()\n", False),
        ("def main():\n    return True\nmain()\n", False),
        ("def main():\n    def inner():\n        return 1\n    print(inner())\nmain()\n", False),
        ("def main():\n    return figures(1)\nmain()\n", False),
        ("@app.command()\n" + MAIN + "main()\n", False),
        ("def main(:\n", False),
        ("", False),
    ],
)
def test_an_exit_code_that_main_returns_to_nobody(tmp_path: Path, source: str, drops: bool) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "check.py").write_text(source)
    expected = {True} if drops else {False}
    commands = (["python3.12", "-u", "pkg/check.py", "--all"], ["/env/bin/python", "-m", "pkg.check"])
    found = [main_that_drops(command, tmp_path) for command in commands]
    assert {bool(each) for each in found} == expected
    assert main_that_drops(["./pkg/check.py"], tmp_path) is None
    assert not drops or str(found[0]).endswith("() of pkg/check.py")


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    assert main_that_drops(["python", "check.py"], tmp_path) is None
    assert main_that_drops(["python", "-c", "main()"], tmp_path) is None
    assert main_that_drops([], tmp_path) is None
