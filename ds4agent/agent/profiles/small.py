"""The profile for models of fewer than three billion parameters.

They write good files and poor calls, forget the task over a result, and stop at the first obstacle.
So they are shown what the person named, write whole files, are forced to begin as something that
can be carried out, are told in one line what went wrong, and their work is looked at unasked.
"""

from collections.abc import Sequence
from dataclasses import replace

from ds4agent.agent.calls import CallOutcome
from ds4agent.agent.mentions import expand
from ds4agent.agent.nudges import asks_for_change, nudge
from ds4agent.agent.profiles import verification
from ds4agent.agent.profiles.folder_view import FolderView, Named
from ds4agent.agent.profiles.guide import END, GO_ON, After, ReplyForm, Surroundings
from ds4agent.agent.profiles.profile import Profile
from ds4agent.agent.prompt import reminder
from engine.chat.reply_rule import ReplyRule

_WRITE, _EDIT, _SHELL = "write", "edit", "bash"
_REPAIRS = 3  # times that a turn goes on because a check found something
_MOST_NAMES = 12  # files that an answer may begin with


class SmallGuide:
    """Leads one turn of a small model."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._task = ""
        self._named = Named()
        self._shown: dict[str, None] = {}  # files that the model has seen whole
        self._is_change = False  # the person asks for one
        self._changed: dict[str, None] = {}
        self._has_run = False  # a command, which may have changed anything
        self._targets: tuple[str, ...] | None = None  # the next answer writes one of these
        self._has_results = False
        self._repairs_left = _REPAIRS
        self._has_started_over = False
        self._is_shaken = False  # the next answer must not be the same again
        self._was_declined = False  # something was forbidden, by a person or a rule

    # --- the message --------------------------------------------------------------------------

    def begin(self, text: str) -> str:
        """Put the files that a message names before it, whole, and a listing; the task is last."""
        around = self._around
        view = FolderView(around.toolbox, around.ctx)
        self._task = text
        self._named = view.named(text)
        self._is_change = asks_for_change(text) and around.may_change()
        context = [path for folder in self._named.folders for path in view.in_folder(folder)]
        if not self._named.files and not context:
            context = list(view.in_folder(""))
        blocks = view.blocks([*dict.fromkeys([*self._named.files, *context])])
        self._shown = dict.fromkeys(blocks)
        if self._is_change:
            self._targets = self._first_targets()
        expanded = expand(text, around.toolbox, around.warn) if "@" in text else text
        attached = expanded.removeprefix(text).strip() if not self._named.files else ""
        return "\n\n".join(
            part for part in (*blocks.values(), attached, view.listing(), text) if part
        )

    def attach(self, text: str) -> str:
        """Return a message that was typed meanwhile with what it mentions."""
        return expand(text, self._around.toolbox, self._around.warn)

    def _first_targets(self) -> tuple[str, ...] | None:
        """Return the files that the first answer must be about; None when it is not known, or
        when the model has to look at something first."""
        named = self._named
        if any(path not in self._shown for path in named.files):
            return None
        names = self._wanted((*named.files, *named.missing))
        return names or None

    # --- answers ------------------------------------------------------------------------------

    def form(self) -> ReplyForm:
        """Force the next answer to begin as something that can be carried out."""
        if not self._around.may_change():
            return ReplyForm()
        if self._targets:
            rule = ReplyRule(files=self._targets, must_call=True)
            return ReplyForm(rule, has_files=True, is_shaken=self._is_shaken)
        names = (*self._named.missing, *self._shown)[:_MOST_NAMES] if self._is_change else ()
        if self._has_results:
            rule = ReplyRule(self._around.specs, files=names, begins_as_words=True)
        elif self._is_change:  # of what is not clear, or must be looked up
            rule = ReplyRule(self._around.specs, files=names, must_call=True)
        else:
            return ReplyForm()
        return ReplyForm(rule, has_files=self._is_change)

    def after(self, outcomes: Sequence[CallOutcome]) -> After:
        """Look at what was done: end, go on, or let the model do it again another way."""
        had_results, self._has_results, self._targets = self._has_results, True, None
        self._is_shaken = False
        for outcome in outcomes:
            self._note(outcome)
        failed = next((o for o in outcomes if o.missed and o.name in (_WRITE, _EDIT)), None)
        if failed is not None:
            return self._another_way(failed)
        are_changes = all(o.ok and o.name in (_WRITE, _EDIT) for o in outcomes)
        if not (self._is_change and outcomes and are_changes):
            return replace(GO_ON, added=reminder(self._task))
        problem, paths = self._problem(outcomes)
        if problem and self._repairs_left:
            self._repairs_left -= 1
            self._targets = paths
            if had_results and not any(outcome.diff for outcome in outcomes):
                self._is_shaken = True
                return After(retry="")  # the same again helps nobody
            names = " or ".join(paths)
            return replace(GO_ON, added=f"\n\n{problem}\nWrite {names} again, whole, and right.")
        if problem:
            self._around.warn(problem)
            return END
        missing = self._missing()
        if missing and self._repairs_left:
            self._repairs_left -= 1
            self._targets = missing
            return replace(GO_ON, added=f"\n\n{missing[0]} is still to be written. Write it now.")
        return END

    def nudge(self, answer: str) -> str:
        """Return what to say to a model that stopped without a call, "" for nothing."""
        if not self._around.may_change():
            return nudge(answer)
        has_acted = bool(self._changed) or self._has_run or self._was_declined
        missing = self._missing() if self._is_change else ()
        if missing and not (self._has_run or self._was_declined):
            self._targets = missing
            return f"{missing[0]} is still to be written. Write it now."
        return nudge(answer, is_undone=asks_for_change(self._task) and not has_acted)

    # --- looking at the work ------------------------------------------------------------------

    def _note(self, outcome: CallOutcome) -> None:
        path = str(outcome.arguments.get("path", ""))
        self._was_declined = self._was_declined or not (outcome.ok or outcome.missed)
        if outcome.ok and outcome.name in (_WRITE, _EDIT):
            if outcome.diff:
                self._changed[path] = None
            self._shown[path] = None
        elif outcome.ok and outcome.name == "read":
            self._shown[path] = None
        elif outcome.name == _SHELL:
            self._has_run = True

    def _missing(self) -> tuple[str, ...]:
        there = set(FolderView(self._around.toolbox, self._around.ctx).entries)
        return tuple(path for path in self._named.missing if path not in there)

    def _another_way(self, failed: CallOutcome) -> After:
        """Let a model whose edit missed, or that wrote over what it never saw, write the whole
        file; what it tried is dropped."""
        path = str(failed.arguments.get("path", ""))
        view = FolderView(self._around.toolbox, self._around.ctx)
        block = view.whole(path) if path in view.entries else None
        if block is None or self._has_started_over:
            return replace(GO_ON, added=reminder(self._task))
        self._has_started_over = True
        self._targets = (path,)
        is_known = path in self._shown
        self._shown[path] = None
        told = f"Write {path} as it shall be, whole."
        return After(retry=told if is_known else f"{block}\n\n{told}\n{self._task}")

    def _problem(self, outcomes: Sequence[CallOutcome]) -> tuple[str, tuple[str, ...]]:
        """Return what is wrong with the files that were just written, and which to write again."""
        view = FolderView(self._around.toolbox, self._around.ctx)
        written = tuple(dict.fromkeys(str(outcome.arguments["path"]) for outcome in outcomes))
        for outcome in outcomes:
            path = str(outcome.arguments["path"])
            problem = verification.lost(path, outcome.diff, self._task)
            problem = problem or verification.spoiled(path, view.text(path) or "")
            if problem:
                return problem, (path,)
        if not self._changed:
            return f"{written[0]} is as it was before: nothing has changed.", written
        return self._run_commands(view), self._repairable(view, written)

    def _run_commands(self, view: FolderView) -> str:
        named = (*self._named.files, *self._named.missing)
        for command in verification.commands(tuple(self._changed), named, view.entries, view.text):
            outcome = self._around.run(_SHELL, verification.call(command.line))
            if outcome is None:
                return ""
            text = view.text(command.path) or ""
            failure = verification.failure(command.line, outcome, text, self._task)
            if failure:
                return failure
        return ""

    def _repairable(self, view: FolderView, written: tuple[str, ...]) -> tuple[str, ...]:
        """Return the files in which the cause of a failure may be: those that were written, and
        those that were named."""
        named = [path for path in self._named.files if path in self._shown]
        return self._wanted([*written, *named, *self._missing()])

    def _wanted(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Leave out the tests that are there, unless there is nothing else: they say what is
        wanted."""
        there = [path for path in self._named.files if verification.is_test(path)]
        others = [path for path in dict.fromkeys(paths) if path not in there]
        return tuple(others or dict.fromkeys(paths))[:_MOST_NAMES]


SMALL = Profile(
    name="small",
    prompt="small.md",
    guide=SmallGuide,
    tools=("read", "edit", "list", "bash"),
    understood=("write",),
    lists_tools=False,  # a list of JSON makes it write JSON
    offers_limits=False,
    max_call_rounds=10,  # what it has not done by then, it will undo
    takes_back_repeats=True,
)
