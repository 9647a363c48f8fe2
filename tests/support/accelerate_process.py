"""A program that accelerates a graph: accelerate_process.py STANDIN CASE LOG START.

Run by test_accelerate_processes.py, several times at once. It waits until START (seconds
since the epoch), appends a line to LOG for each module that it compiles, and checks what a call
writes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import cudnn_bindgen
from cudnn_bindgen.frontend.accelerating import accelerate as room
from support import fake_pygraph
from support.cases import CASES
from support.fake_pygraph import Graph
from support.operands import Operands
from support.standin import Standin


def main(directory: str, name: str, log: str, start: str) -> None:
    standin = Standin.load(directory)
    sys.modules["cudnn"] = fake_pygraph.frontend()
    compile_module = room.compile_module

    def logged(*arguments: Any) -> Path:
        with Path(log).open("a") as file:
            file.write("compiled\n")
        return compile_module(*arguments)

    room.compile_module = logged
    with standin.context():
        time.sleep(max(0, float(start) - time.time()))
        accelerated = cudnn_bindgen.accelerate(Graph(CASES[name].plan))
        for seed in range(5):
            operands = Operands(standin, CASES[name], seed)
            accelerated.execute(operands.by_uid)
            operands.check()


if __name__ == "__main__":
    main(*sys.argv[1:])
