"""nvidia-smi as a script that answers from files."""

from __future__ import annotations

from pathlib import Path

IDLE = "{index}, GPU-{index}, NVIDIA H200, 550.90.07, 143771, {memory}, {load}, 9.0"
SMI = """#!/bin/sh
case "$*" in
*query-compute-apps*) cat {0}/apps ;;
*-lms*) echo "timestamp, index, clocks.current.sm [MHz]"; while :; do cat {0}/samples; sleep 0.05; done ;;
*query-gpu*) cat {0}/gpus ;;
*) echo "CUDA Version: 12.4" ;;
esac
"""
SAMPLE = "2026/11/21 10:15:00.000, {}, {}, 3201, {}, {}, {}, 5000, 0x00000000000000{:02x}\n"


class Smi:
    """The fake nvidia-smi's answers, as files that stages may change while they run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        program = folder / "nvidia-smi"
        program.write_text(SMI.format(folder))
        program.chmod(0o755)
        self.show()

    def show(
        self, apps: str = "", memory: int | str = 4, load: int | str = 0, cards: int = 1, samples: str = ""
    ) -> None:
        rows = [IDLE.format(index=i, memory=memory if i == 0 else 4, load=load if i == 0 else 0) for i in range(cards)]
        for name, text in (("gpus", "\n".join(rows) + "\n"), ("apps", apps), ("samples", samples)):
            (self.folder / name).write_text(text)
