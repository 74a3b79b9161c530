"""What scripts are there for: not what they say, prepare, or ask in order to choose."""

from __future__ import annotations

import pytest

from orchestrator.agent.evidence.shell.scripts import Scripts

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("set -e\nmkdir -p out; cd out\npython x.py > log\necho done", ["python"]),
        ("if command -v nvcc >/dev/null; then python x.py; fi", ["python"]),
        ('[ -n "$A" ] && python x.py', ["python"]),
        ('if [ -z "$A" ]; then exit 0; fi\npython x.py', ["python"]),
        ("test -s out.bin\n[ -z $A ] || python x.py", ["test", "python"]),
        ("main() { python x.py; }\nmain", ["python"]),
        ("for f in *.py; do python $f; done; make check", ["python", "make"]),
        ("trap 'rm -f a' EXIT\n. ./env.sh\nexport A=1\n: python x.py", []),
        ("echo a | sort | tee b", ["sort"]),
    ],
)
def test_what_a_script_is_there_for(text: str, programs: list[str]) -> None:
    assert [command.name for _, command in Scripts({"x.sh": text}).work()] == programs
