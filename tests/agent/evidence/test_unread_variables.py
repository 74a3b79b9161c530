"""Which variables that a stage sets no code asks for, by the files of a tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.evidence.unread_variables import Variables

pytestmark = pytest.mark.unit

ASKS = "import os\nfast = os.environ.get('KERN_FAST_PATH')\n"


def unread(folder: Path, files: dict[str, str], *given: str, script: str = "", installed: str = "") -> list[str]:
    for name, text in {"kern.py": ASKS, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    found = Variables(folder, names, [installed]).unread(given, [script])
    return [said.partition(" ")[0] for said in found]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"README.md": "Set `KERN_USE_FAST` for the fast path"},
        {"run.sh": "export KERN_USE_FAST=1\npython kern.py\n"},
        {"runbooks/r.yaml": "env: {KERN_USE_FAST: '1'}\nshell: KERN_USE_FAST=1 pytest\n"},
        {"other.py": "KERN_USE_FAST_PATH = 1\n"},
        {"fast.py": "import os\ndef f():\n    # as KERN_USE_FAST did\n    return 1  # KERN_USE_FAST\n"},
        {"fast.py": '"""KERN_USE_FAST chose the path."""\ndef f():\n    """KERN_USE_FAST"""\n'},
        {"run.sh": "# KERN_USE_FAST has gone\npython kern.py\n", "a.cu": "  // KERN_USE_FAST\nint x;\n"},
    ],
)
def test_one_that_is_only_set(tmp_path: Path, files: dict[str, str]) -> None:
    assert unread(tmp_path, files, "KERN_USE_FAST") == ["KERN_USE_FAST"]


@pytest.mark.parametrize(
    "script", ["KERN_USE_FAST=1 pytest", "set -e\nexport KERN_USE_FAST=1; pytest", "env KERN_USE_FAST=1 pytest"]
)
def test_one_that_a_script_sets(tmp_path: Path, script: str) -> None:
    assert unread(tmp_path, {}, script=script) == ["KERN_USE_FAST"]


@pytest.mark.parametrize(
    "files",
    [
        {"fast.py": "import os\nif 'KERN_USE_FAST' in os.environ: pass\n"},
        {"flags.py": "FLAGS = {'KERN_USE_FAST': False}\n"},
        {"csrc/fast.cu": 'static bool fast = getenv("KERN_USE_FAST") != nullptr;\n'},
        {"old.py": "import os\nprint os.environ['KERN_USE_FAST']\nif x\n  y = (\n"},  # of another Python
        {"csrc/fast.h": "#define KERN_USE_FAST 1\n"},
        {"run.sh": '[ -n "$KERN_USE_FAST" ] && echo fast\n'},
        {"run.sh": ': "${KERN_USE_FAST:=1}"\n'},
        {"Makefile": "all:\n\tnvcc -DFAST=$(KERN_USE_FAST)\n"},
        {"CMakeLists.txt": "if(DEFINED ENV{KERN_USE_FAST})\nendif()\n"},
        {"fast.py": "import os\ndef flag(name): return os.environ.get(f'KERN_{name}')\n"},
        {"fast.py": "import os\nmine = {k: v for k, v in os.environ.items() if k.startswith('KERN_')}\n"},
        {"fast.py": "import os\nname = 'KERN_USE_' + 'fast'.upper()\n"},
        {"fast.py": "class Settings(BaseSettings):\n    model_config = SettingsConfigDict(env_prefix='KERN_')\n"},
        {"cli.py": "main(auto_envvar_prefix='KERN')\n"},
        {"fast.py": "import os\nPREFIX = __package__.upper()\nfast = os.environ.get(PREFIX + '_USE_FAST')\n"},
        {"fast.py": "import os\nfast = os.environ.get(f'{prefix}_USE_FAST')\n"},
        {"conftest.py": "import os\nos.environ.setdefault('KERN_USE_FAST', '0')\n"},
    ],
)
def test_one_that_something_may_ask_for(tmp_path: Path, files: dict[str, str]) -> None:
    assert unread(tmp_path, files, "KERN_USE_FAST") == []


def test_others_than_the_trees_own(tmp_path: Path) -> None:
    asks = {"more.py": "import os\nos.getenv('CUDA_HOME'), os.getenv('LIB_HOME'), os.getenv('USE_X')\n"}
    assert (
        unread(tmp_path, asks, "CUDA_LAUNCH_BLOCKING", "LIB_FAST", "USE_Y", "MINE_X", "DEBUG", installed="lib_core")
        == []
    )
    assert unread(tmp_path, {"kern/a.py": ""}, "KERN_FAST", installed="kern") == ["KERN_FAST"]  # which is of the tree
    assert unread(tmp_path, asks, script='KERN_DIR=$PWD/x\ncd "$KERN_DIR"') == []
