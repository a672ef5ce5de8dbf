"""The real program with a scripted model: ``python -m tests.fakes.scripted_agent SCRIPT -- ARGS``.

SCRIPT is a JSON file: ``{"replies": [...], "delay_s": 0.0, "ctx": 16384}``.
"""

import json
import sys
from pathlib import Path

from ds4agent.cli import main
from tests.fakes.scripted_model import scripted_engine


def run(argv: list[str]) -> int:
    script = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    arguments = argv[2:] if argv[1:2] == ["--"] else argv[1:]
    return main(arguments, open_engine=lambda progress, cancel: scripted_engine(**script))


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
