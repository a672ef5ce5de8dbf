"""``python -m ds4agent.server``: the command ``ds4-server``."""

from ds4agent.server.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
