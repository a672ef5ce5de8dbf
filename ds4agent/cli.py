"""The command line. Only the standard library is imported here; the rest when it is needed."""

import argparse
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ds4agent import paths
from ds4agent.config import Config, load_config, show
from ds4agent.errors import ConfigError, UsageError, explain, is_expected
from ds4agent.requests import Mode, Start
from ds4agent.run_settings import FORMATS, RunRequest, run_settings

_SUBCOMMANDS = ("config", "doctor", "eval", "models", "prompt", "sandbox", "sessions")
_DEVICES = ("auto", "metal", "cuda", "cpu", "mlx-cpu")
_STDIN = "-"  # -p without a text
_PICK = "?"  # --resume without an id
_EPILOG = """\
subcommands (`ds4-agent NAME --help`):
  models list|pull|verify|info    model files
  sessions list|show|delete       saved conversations
  prompt render                   a conversation as the model sees it
  config show                     settings and where they come from
  eval                            agent tasks on a model
  sandbox -- COMMAND...           run a command confined as the model's are
  doctor                          what a bug report needs

exit codes: 0 done, 1 error or limit, 2 usage, 3 refused, 130 interrupted
"""


def main(argv: list[str] | None = None, open_engine: Callable[..., Any] | None = None) -> int:
    """Run the program and return its exit code.

    Args:
        argv: arguments without the program's name; None takes those of the process.
        open_engine: replaces loading a model file, for tests: called with a progress callback and
            an event that asks it to give up.

    Errors that were written for people become one line on standard error. Everything else becomes
    one line too, and a traceback in the log.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    _replace_closed_streams()
    try:
        code = _run(arguments, open_engine)
        sys.stdout.flush()  # at the exit it would be too late to deal with a reader that is gone
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # the program's outer edge: never a traceback on the screen
        from ds4agent.plain import plain

        line = plain(explain(error))  # it may quote what a file or a folder is called
        if is_expected(error):
            print(f"ds4-agent: {line}", file=sys.stderr)
            return 2 if isinstance(error, UsageError | ConfigError) else 1
        _log_to_file()
        logging.getLogger(__name__).error("unexpected error", exc_info=error)
        print(
            f"ds4-agent: internal error: {line}. Details are in {paths.log_file()}",
            file=sys.stderr,
        )
        return 1


def _run(arguments: list[str], open_engine: Callable[..., Any] | None) -> int:
    try:
        if arguments and arguments[0] in _SUBCOMMANDS:
            return _subcommand(arguments)
        return _agent(_parser().parse_args(arguments), open_engine)
    except SystemExit as end:  # the parser's way to end: help, version, a wrong option
        return end.code if isinstance(end.code, int) else 1


class _Parser(argparse.ArgumentParser):
    """Tells a wrong option in one line: the usage of all options would push it off the screen."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help.\n")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: that reads the installed packages."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        sys.stdout.write(f"ds4-agent {_version()}\n")
        parser.exit()


# --- the agent ----------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ds4-agent",
        description="A coding agent in the terminal whose model runs inside this program.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("start_prompt", nargs="?", metavar="PROMPT", help="first message")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    parser.add_argument(
        "-p",
        "--prompt",
        nargs="?",
        const=_STDIN,
        metavar="TEXT",
        help="do this without a screen and exit; without TEXT it is read from standard input",
    )
    parser.add_argument(
        "--output-format", choices=FORMATS, help="without a screen: text (default), json, ..."
    )
    parser.add_argument(
        "--json-schema", metavar="FILE", help="without a screen: the answer is JSON of this schema"
    )

    model = parser.add_argument_group("model")
    model.add_argument("-m", "--model", metavar="NAME|FILE", help="a known name or a GGUF file")
    model.add_argument("-c", "--ctx", type=_count, metavar="N", help="context length in tokens")
    model.add_argument("--device", choices=_DEVICES, help="what computes")
    model.add_argument("-n", "--tokens", type=_count, metavar="N", help="longest answer in tokens")
    thinking = model.add_mutually_exclusive_group()
    thinking.add_argument("--think", action="store_true", default=None, help="think first")
    thinking.add_argument("--nothink", action="store_false", dest="think", help="answer at once")
    model.add_argument("--temp", type=_number, metavar="F", help="0 takes the likeliest token")
    model.add_argument("--top-p", type=_share, metavar="F", help="nucleus sampling, 0 to 1")
    model.add_argument("--top-k", type=_size, metavar="N", help="sample among N tokens; 0: all")
    model.add_argument("--min-p", type=_share, metavar="F", help="drop tokens below this share")
    model.add_argument("--seed", type=_size, metavar="N", help="repeat the same sampling")

    work = parser.add_argument_group("work")
    work.add_argument(
        "--approval",
        choices=[mode.value for mode in Mode],
        help="plan: read only; ask before changes; auto: edits and sandboxed commands run; "
        "full: nothing is asked",
    )
    work.add_argument(
        "--trust",
        action="store_true",
        help="use what the folder brings for agents (AGENTS.md, .ds4/) in this run, unasked",
    )
    work.add_argument("--chdir", metavar="DIR", help="work in this folder")
    resume = work.add_mutually_exclusive_group()
    resume.add_argument(
        "--continue", action="store_true", dest="resume_latest", help="go on here where it stopped"
    )
    resume.add_argument(
        "--resume", nargs="?", const=_PICK, metavar="ID", help="go on with a saved conversation"
    )
    work.add_argument(
        "--inline",
        action="store_true",
        help="print into the terminal's own scrollback instead of drawing a screen",
    )
    work.add_argument("--no-save", action="store_true", help="neither load nor save conversations")
    return parser


def _agent(args: argparse.Namespace, open_engine: Callable[..., Any] | None) -> int:
    prompt, is_headless = _prompt(args)
    if is_headless and args.resume == _PICK:
        raise UsageError("--resume needs an ID without a screen", "See `ds4-agent sessions list`.")
    if args.resume is not None and not args.resume.strip():
        # Of a script whose variable is empty: its prompt must not go to another conversation.
        raise UsageError("--resume got an empty ID", "See `ds4-agent sessions list`.")
    if args.json_schema is not None and not is_headless:
        raise UsageError("--json-schema is for runs without a screen", "Use -p TEXT.")
    if args.no_save and (args.resume or args.resume_latest):
        raise UsageError("--no-save does not go with --continue and --resume", "Leave one out.")
    cwd = _folder(args.chdir)
    request = RunRequest(
        cwd=cwd,
        flags={
            "ctx": args.ctx,
            "device": args.device,
            "max_tokens": args.tokens,
            "thinking": args.think,
            "temperature": args.temp,
            "top_p": args.top_p,
            "top_k": args.top_k,
            "min_p": args.min_p,
            "seed": args.seed,
        },
        approval=args.approval,
        is_headless=is_headless,
        saves=not args.no_save,
        schema=_schema(args.json_schema),
        trusts=args.trust,
    )
    run = run_settings(request)
    if open_engine is None:
        from ds4agent.models import engine_opener

        open_engine = engine_opener(args.model, run.config)
    start = Start(
        resume_id="" if args.resume in (None, _PICK) else args.resume,
        resume_latest=args.resume_latest,
        prompt="" if is_headless else prompt,
    )
    _log_to_file()

    def make_worker(events: Any = None) -> Any:
        from ds4agent.agent.worker import AgentWorker

        return AgentWorker(open_engine, run.agent, start, run.project, events)

    if is_headless:
        from ds4agent.headless import run_headless

        worker = make_worker()
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="replace")
        return run_headless(worker, prompt, args.output_format or "text", sys.stdout, sys.stderr)
    from ds4agent.late_worker import LateWorker

    worker = LateWorker(make_worker)  # its modules load behind the first paint
    return _screen(
        worker,
        cwd,
        is_trusted=run.project is None,
        opens_list=args.resume == _PICK,
        is_inline=args.inline,
        config=run.config.with_values({"history": False if args.no_save else None}, "--no-save"),
    )


def _prompt(args: argparse.Namespace) -> tuple[str, bool]:
    """Return the message, and whether the program runs without a screen.

    ``-p TEXT`` never touches standard input: where a program starts another one, that is often a
    pipe that nobody closes. Otherwise what is piped in belongs to the prompt:
    ``git diff | ds4-agent "review this"``.
    """
    has_screen = sys.stdin.isatty() and sys.stdout.isatty()
    is_headless = args.prompt is not None or not has_screen or args.output_format is not None
    prompt = args.start_prompt or ""
    if args.prompt not in (None, _STDIN):
        if prompt:
            raise UsageError("there are two prompts", "Give PROMPT or -p, not both.")
        prompt = args.prompt
    elif is_headless and (_is_piped() or args.prompt == _STDIN and not sys.stdin.isatty()):
        piped = sys.stdin.buffer.read().decode("utf-8", "replace")
        prompt = f"{prompt}\n\n{piped}".strip()
    if is_headless and not prompt.strip():
        raise UsageError("there is no prompt", "Use -p TEXT, or pipe it in.")
    # Arguments that are no UTF-8 arrive as lone surrogates, which nothing can encode.
    return prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), is_headless


def _replace_closed_streams() -> None:
    """Stand in for standard streams that whoever started the program has closed.

    Python has None in their place. Their numbers must be taken, too, or a model file would become
    the standard input of something.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  for good


def _is_piped() -> bool:
    """True when standard input is a pipe or a file, so that reading it comes to an end."""
    import stat

    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _schema(name: str | None) -> dict[str, Any] | None:
    if name is None:
        return None
    from ds4agent.agent.answer_form import read_schema

    return read_schema(Path(name))


def _screen(
    worker: Any, cwd: Path, *, is_trusted: bool, opens_list: bool, is_inline: bool, config: Config
) -> int:
    from ds4agent.commands import COMMANDS, CommandTable
    from ds4agent.extensions.markdown_commands import read_commands
    from ds4agent.inline.terminal import is_bare
    from ds4agent.requests import ListSessions

    if is_inline or is_bare():
        from ds4agent.inline.run import run_inline as run
    else:
        from ds4agent.tui.app import run_tui as run
    if opens_list:
        worker.send(ListSessions())
    closed: list[str] = []
    taken = [name for entry in COMMANDS for name in (entry.name, *entry.aliases)]
    folders = paths.command_folders(cwd)
    added, problems = read_commands(folders if is_trusted else folders[:1], taken)
    table = CommandTable(command.entry() for command in added)

    def add_commands_of_project() -> list[str]:
        added, problems = read_commands(folders, taken)
        table.replace_added(command.entry() for command in added)
        return problems

    code = run(
        worker,
        commands=table,
        notes=problems,
        on_closed=closed.append,
        on_trusted=add_commands_of_project,
        config=config,
    )
    if closed and closed[0]:
        print(f"resume with: ds4-agent --resume {closed[0][:8]}")
    if worker.is_given_up:
        from ds4agent.ending import leave_at_once

        leave_at_once(code)
    return code


# --- subcommands --------------------------------------------------------------------------------


def _subcommand(arguments: list[str]) -> int:
    from ds4agent import doctor, models_cli, prompt_cli, sandbox_cli, sessions_cli
    from ds4agent.evaluation import cli as evaluation_cli

    parser = _Parser(prog="ds4-agent")
    subparsers = parser.add_subparsers(dest="subcommand", required=True)
    models_cli.add_parser(subparsers)
    sessions_cli.add_parser(subparsers)
    prompt_cli.add_parser(subparsers)
    config = subparsers.add_parser("config", help="show the settings")
    actions = config.add_subparsers(dest="action", required=True, metavar="ACTION")
    showing = actions.add_parser("show", help="every setting and its value")
    showing.add_argument("--origin", action="store_true", help="say where each value comes from")
    showing.set_defaults(run=_show_config)
    schema = actions.add_parser("events", help="the JSON schema of --output-format stream-json")
    schema.set_defaults(run=_show_event_schema)
    doctor.add_parser(subparsers)
    sandbox_cli.add_parser(subparsers)
    evaluation_cli.add_parser(subparsers)
    args = parser.parse_args(arguments)
    _log_to_file()
    sys.stdout.reconfigure(errors="replace")  # the name of a folder may be no UTF-8
    return args.run(args)


def _show_config(args: argparse.Namespace) -> int:
    sys.stdout.write(show(load_config(Path.cwd()), with_origin=args.origin))
    return 0


def _show_event_schema(args: argparse.Namespace) -> int:
    import json

    from ds4agent.event_schema import event_schema

    print(json.dumps(event_schema(), indent=2, ensure_ascii=False))
    return 0


# --- values -------------------------------------------------------------------------------------


def _folder(name: str | None) -> Path:
    try:
        folder = Path(name).expanduser() if name else Path.cwd()
        if not folder.is_dir():
            raise UsageError(f"--chdir {name}: there is no such folder")
        is_open = os.access(folder, os.R_OK | os.X_OK)
    except PermissionError:
        is_open = False
    except FileNotFoundError as error:
        raise UsageError("the folder of this shell is gone", "Change to another one.") from error
    if not is_open:
        raise UsageError(
            f"no permission to read the folder {name or 'of this shell'}",
            "Change its rights, or work in another one.",
        )
    return folder.resolve()


def _count(text: str) -> int:
    return _checked(text, int, "a whole number above 0", lambda value: value > 0)


def _size(text: str) -> int:
    return _checked(text, int, "a whole number, 0 or more", lambda value: value >= 0)


def _number(text: str) -> float:
    return _checked(text, float, "a number, 0 or more", lambda value: 0 <= value < float("inf"))


def _share(text: str) -> float:
    return _checked(text, float, "a number from 0 to 1", lambda value: 0 <= value <= 1)


def _checked(text: str, kind: type, wanted: str, is_good: Callable[[Any], bool]) -> Any:
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not is_good(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
    return value


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ds4-agent")
    except PackageNotFoundError:
        return "(not installed)"


def _log_to_file() -> None:
    """Send warnings and tracebacks to the log; a folder that cannot be written is no reason to
    refuse work."""
    root = logging.getLogger()
    path = paths.log_file()
    if any(getattr(handler, "baseFilename", "") == str(path) for handler in root.handlers):
        return
    try:
        paths.make_private(path.parent)
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError:
        handler = logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
