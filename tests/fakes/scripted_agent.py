"""The real program with a scripted model: ``python -m tests.fakes.scripted_agent SCRIPT -- ARGS``.

SCRIPT is a JSON file: ``{"replies": [...], "delay_s": 0.0, "ctx": 16384, "load_s": 0.0}``. The
model loads for ``load_s`` seconds, and nothing stops it.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ds4agent.cli import main
from engine.engine import Engine
from tests.fakes.scripted_model import scripted_engine


def run(argv: list[str]) -> int:
    script = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    arguments = argv[2:] if argv[1:2] == ["--"] else argv[1:]
    load_s = script.pop("load_s", 0.0)

    def load(progress: Any, cancel: threading.Event) -> Engine:
        time.sleep(load_s)
        return scripted_engine(**script)

    return main(arguments, open_engine=load)


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
