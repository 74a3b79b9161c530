"""Which programs hold tests that nothing in them can have called."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.injected.programs.idle_tests import holds_idle_tests
from orchestrator.agent.injected.programs.inert import is_inert

TEST = "def test_a(): assert len('a')\n"
METHOD = "import unittest\nclass TestA(unittest.TestCase):\n    def test_a(self): self.assertTrue(1)\n"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("source", "idle"),
    [
        (TEST, True),
        (TEST + "print('done')\n", True),
        (METHOD, True),
        ("import torch\ntorch.manual_seed(0)\n" + TEST + "if __name__ == '__main__':\n    print('done')\n", True),
        ("def helper(): return 1\n" + TEST + "print(helper())\n", True),
        ("import pytest\n@pytest.mark.slow\n" + TEST, True),
        ("def test_a(): print('no assertion')\n", False),
        (TEST + "test_a()\n", False),
        (TEST + "def each(): test_a()\nif __name__ == '__main__': each()\n", False),
        (TEST + "for f in [v for k, v in globals().items() if k.startswith('test')]: f()\n", False),
        (TEST + "import pytest, sys\nsys.exit(pytest.main([__file__]))\n", False),
        (METHOD + "unittest.main()\n", False),
        (METHOD + "TestA('test_a').debug()\n", False),
        ("from lib import run_now\n@run_now\n" + TEST, False),
        ("from torch.testing._internal.common_utils import run_tests\n" + METHOD + "run_tests()\n", False),
        ("def train(): pass\ntrain()\n", False),
    ],
)
def test_a_program_whose_tests_nothing_calls(tmp_path: Path, source: str, idle: bool) -> None:
    file = tmp_path / "program.py"
    file.write_text(source)
    assert holds_idle_tests(str(file)) is idle


WORK = "import os\ndef work(): print(1)\ndef main(): work()\n"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("source", "inert"),
    [
        (WORK + "if __name__ == '__main_':\n    main()\n", True),
        (WORK + "if 'main' == __name__:\n    main()\n", True),
        (WORK + "log = os.getenv('LOG')\nif __name__ == '__main_':\n    main()\n", True),
        (WORK, True),
        (WORK + "if os.name == 'posix':\n    SIZE = 3\n", True),
        (WORK + "if __name__ == '__main__':\n    main()\n", False),
        (WORK + "if __name__ == '__mp_main__':\n    work()\nelif __name__ == '__main__':\n    main()\n", False),
        (WORK + "if __name__ == '__mp_main__':\n    work()\nmain()\n", False),
        (WORK + "main()\n", False),
        (WORK + "result = main()\n", False),
        (WORK + "if __name__ == 'builtins':\n    main()\nprint(3)\n", False),
        (WORK + "raise SystemExit(main())\n", False),
        (WORK + "print('begin')\nif __name__ == '__main_':\n    main()\nwork()\n", True),
        (WORK + "print('begin')\nif '__name__' == '__main__':\n    main()\n", True),
        (WORK + "print('begin')\nif __name__ == 'main':\n    main()\n", True),
        (WORK + "print('begin')\nif __name__ == '__main__':\n    main\n", True),
        (WORK + "print('begin')\n", True),
        (WORK + "print('begin', work())\n", False),
        ("def now(f): f()\n@now\ndef main(): print(1)\nprint('begin')\n", False),
        ("async def main(): pass\nif __name__ == '__main__':\n    main()\n", True),
        ("def main():\n    yield\nif __name__ == '__main__':\n    main()\n", True),
        ("def main():\n    yield\nif __name__ == '__main__':\n    for _ in main(): pass\n", False),
        ("async def main(): pass\nif __name__ == '__main__':\n    import asyncio; asyncio.run(main())\n", False),
        ("import click\n@click.command()\nasync def main(): pass\nif __name__ == '__main__':\n    main()\n", False),
        (WORK + "try:\n    main()\nexcept OSError:\n    pass\n", False),
        ("SIZE = 3\ndef twice(x): return 2 * x\n", False),
        ("def main(:", False),
    ],
)
def test_a_program_that_only_defines(tmp_path: Path, source: str, inert: bool) -> None:
    file = tmp_path / "program.py"
    file.write_text(source)
    assert is_inert(str(file)) is inert
