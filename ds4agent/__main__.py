"""``python -m ds4agent`` is ``ds4-agent``."""

from ds4agent.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
