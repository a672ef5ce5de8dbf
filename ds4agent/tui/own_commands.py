"""What the screen does by itself: help, colours, copying, export, settings, the mouse.

``ScreenCommands`` is the part of the app that carries out a ``ScreenRequest``, whether it comes
from a slash command or from a key. What only some of them need is imported when they are asked
for, so that the first paint does not wait for it.
"""

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App
from textual.binding import Binding
from textual.widgets import OptionList

from ds4agent.commands import CommandTable
from ds4agent.completion.file_index import FileIndex
from ds4agent.completion.suggest import Completer
from ds4agent.config import Config
from ds4agent.errors import UsageError, explain
from ds4agent.events import PermissionEntry, SessionPreview, SessionsFound
from ds4agent.record.record import Record
from ds4agent.requests import EditPermissions, PreviewSession, SearchSessions, TakeBackQueued
from ds4agent.screen_requests import (
    Copy,
    Export,
    ScreenRequest,
    SetMouse,
    SetTheme,
    ShowHelp,
    ShowSettings,
    TellMode,
    What,
)
from ds4agent.screen_rules import text_to_copy
from ds4agent.tui import theme
from ds4agent.tui.clipboard import copy
from ds4agent.tui.feed import Worker
from ds4agent.tui.input_history import InputHistory
from ds4agent.tui.keys import KEYS
from ds4agent.tui.notify import Notifier
from ds4agent.tui.plain import count, one_line
from ds4agent.tui.widgets.approval import ApprovalPanel
from ds4agent.tui.widgets.composer import Composer
from ds4agent.tui.widgets.queue_preview import QueuePreview
from ds4agent.tui.widgets.status_line import StatusLine
from ds4agent.tui.widgets.suggestions import Suggestions

if TYPE_CHECKING:
    from ds4agent.tui.own_shell import OwnShell, ShellResult
    from ds4agent.tui.widgets.session_picker import SessionPicker

AT_ONCE = ("theme", "motion", "mouse", "notify", "notify_after")  # settings that hold at once


class ScreenCommands(App[int]):
    """The base of the app: it knows the record of the conversation, but not the worker."""

    BINDINGS = [
        Binding("f1", "help", "Help", priority=True),
        Binding("f2", "settings", "Settings", priority=True),
        Binding("f6", "mouse", "Mouse to the terminal, or back", priority=True),
    ]

    _commands: CommandTable
    _worker: Worker
    controller: Any

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        for own in theme.OWN_THEMES:
            self.register_theme(own)
        self.config = config or Config()
        self.record = Record()
        self.has_mouse = self.config.mouse
        self._shell: OwnShell | None = None
        self.notifier = Notifier(self._write_sequence, "auto", 0.0)
        for name in AT_ONCE:
            self._use(self.config, name)

    async def obey(self, request: ScreenRequest) -> None:
        """Carry out a request; what is wrong with it is told."""
        try:
            said = self._obey(request)
        except UsageError as refused:
            await self._say(explain(refused), "warning")
            return
        if said:
            await self._say(said)

    def _obey(self, request: ScreenRequest) -> str:
        match request:
            case ShowHelp():
                self.action_help()
            case TellMode():
                mode = self._status.status.mode
                return f"The mode is {mode.value}." if mode else "The mode is not known yet."
            case Copy(what):
                return self._copy(what)
            case Export(path):
                return self._export(path)
            case SetTheme(name):
                return self.use_theme(name)
            case SetMouse(is_on):
                return self.use_mouse(not self.has_mouse if is_on is None else is_on)
            case ShowSettings():
                self.action_settings()
        return ""

    # --- colours and the mouse -------------------------------------------------------------------

    def use_theme(self, name: str) -> str:
        """Change the colours, or say which are there; returns what to tell the person."""
        if not name:
            return (
                f"The theme is {self.config.theme}. "
                "/theme auto, dark, light, ansi or high-contrast changes it."
            )
        self.config = self.config.with_values({"theme": name}, "/theme")
        self._use(self.config, "theme")
        return ""

    def use_mouse(self, is_on: bool) -> str:
        """Take the mouse, or leave it to the terminal; returns what to tell the person."""
        self.has_mouse = is_on
        driver = self._driver
        # Textual has a switch for the start only; its drivers for terminals have these two.
        switch = "_enable_mouse_support" if is_on else "_disable_mouse_support"
        if driver is not None and hasattr(driver, switch):
            driver._mouse = True  # else the first of the two does nothing
            getattr(driver, switch)()
            driver.flush()
        if is_on:
            return "The mouse works here: select to copy, click to open."
        return "The mouse belongs to the terminal now. F6 takes it back."

    # --- copying ---------------------------------------------------------------------------------

    def _export(self, path: str) -> str:
        from ds4agent.record.export import export

        return f"Wrote {one_line(str(export(self.record, path, self._folder)))}"

    def _copy(self, what: What) -> str:
        text, name = text_to_copy(self.record, what)
        copy(self, text)
        return f"Copied the {name}: {count(len(text), 'character')}"

    def on_text_selected(self, event: events.TextSelected) -> None:
        """Text was selected with the mouse: that alone copies it, as in a terminal."""
        selected = self.screen.get_selected_text()
        if selected:
            copy(self, selected)
            self.show_hint(f"copied {count(len(selected), 'character')}")

    # --- keys ------------------------------------------------------------------------------------

    def action_help(self) -> None:
        """Show the commands and keys, or close them."""
        from ds4agent.tui.widgets.help_screen import HelpScreen

        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss(None)
        elif len(self.screen_stack) == 1:
            self.push_screen(HelpScreen(self._commands, KEYS))

    async def action_mouse(self) -> None:
        await self.obey(SetMouse())

    def action_settings(self) -> None:
        """Show the settings, or close them."""
        from ds4agent.tui.widgets.settings_screen import SettingsScreen

        if isinstance(self.screen, SettingsScreen):
            self.screen.dismiss(None)
        elif len(self.screen_stack) == 1:
            self.push_screen(SettingsScreen(self.config, self._use, AT_ONCE))

    def _use(self, config: Config, name: str) -> None:
        """Let a setting hold from now on, if it is one of the screen's own."""
        self.config = config
        match name:
            case "theme":
                self.theme = theme.theme_name(config.theme)
            case "motion":
                self.animation_level = "full" if theme.may_animate(not config.motion) else "none"
            case "mouse" if config.mouse != self.has_mouse:
                self.use_mouse(config.mouse)
            case "notify":
                self.notifier.way = config.notify
            case "notify_after":
                self.notifier.after_s = config.notify_after

    def _write_sequence(self, sequence: str) -> None:
        if self._driver is not None:
            self._driver.write(sequence)

    # --- the composer ----------------------------------------------------------------------------

    def new_composer(self, suggestions: Suggestions) -> Composer:
        """Make the composer with what it completes from and the history that it keeps."""
        files = FileIndex(lambda: Path(self.record.cwd or Path.cwd()))
        history = InputHistory() if self.config.history else None
        return Composer(suggestions, Completer(self._commands, files), history)

    def on_composer_hint(self, event: Composer.Hint) -> None:
        self.show_hint(event.text, 4.0)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if isinstance(event.option_list, Suggestions):
            self._main_composer.take_suggestion()

    # --- the person's own shell ------------------------------------------------------------------

    async def run_own_command(self, line: str) -> None:
        """Run what stands behind "!"; "!!" also puts the output into the composer."""
        from ds4agent.tui.own_shell import OwnShell

        self._shell = self._shell or OwnShell()
        if self._shell.is_running:
            await self._say("One command at a time: Esc ends the one that runs.", "warning")
            return
        attaches = line.startswith("!!")
        command = line.lstrip("!").strip()
        if command:
            self.show_hint(f"running {one_line(command)[:40]} · Esc ends it", 0.0)
            self._shell.run(command, self._folder, partial(self._own_command_done, attaches))

    def _own_command_done(self, attaches: bool, result: "ShellResult") -> None:
        with contextlib.suppress(RuntimeError):  # the screen was closed meanwhile
            self.call_from_thread(self._own_command_ended, attaches, result)

    async def _own_command_ended(self, attaches: bool, result: "ShellResult") -> None:
        self.show_hint("", 0.0)
        await self._say(result.text)
        if attaches:
            self._main_composer.attach(result.text)

    def stop_own_command(self) -> bool:
        """End the person's running command; False when there is none."""
        return self._shell is not None and self._shell.stop()

    # --- queue, rules, conversations -------------------------------------------------------------

    def on_composer_queue_asked(self) -> None:
        self.screen_stack[0].query_one(QueuePreview).focus()

    def on_queue_preview_left(self) -> None:
        self._main_composer.focus()

    def on_queue_preview_wanted(self, event: QueuePreview.Wanted) -> None:
        """A queued message was chosen: it comes back into the composer, or is dropped."""
        if not event.is_dropped:
            self._main_composer.take()  # what was being typed is a key away: Up
            self.controller.take_back(event.text)
            self._main_composer.focus()
        self._worker.send(TakeBackQueued(event.text))

    def show_permissions(self, entries: Sequence[PermissionEntry]) -> None:
        """Show the rules, or show them anew."""
        from ds4agent.tui.widgets.permission_screen import PermissionScreen

        if isinstance(self.screen, PermissionScreen):
            self.screen.show(entries)
        elif len(self.screen_stack) == 1:
            self.push_screen(PermissionScreen(entries))

    def on_approval_panel_rule_given(self, event: ApprovalPanel.RuleGiven) -> None:
        self._worker.send(EditPermissions("allow", event.rule))

    def on_permission_screen_edited(self, event: Any) -> None:
        self._worker.send(EditPermissions(event.action, event.rule))

    def on_session_picker_preview_wanted(self, event: "SessionPicker.PreviewWanted") -> None:
        self._worker.send(PreviewSession(event.session_id))

    def on_session_picker_search_wanted(self, event: "SessionPicker.SearchWanted") -> None:
        self._worker.send(SearchSessions(event.words))

    def show_found(self, event: SessionsFound) -> None:
        """Show what a search found in the list that asked for it."""
        if (picker := self._picker) is not None:
            picker.show_found(event.words, event.ids)

    def show_preview(self, event: SessionPreview) -> None:
        """Show the end of a conversation in the list that asked for it."""
        if (picker := self._picker) is not None:
            picker.show_preview(event.session_id, event.text)

    @property
    def _picker(self) -> "SessionPicker | None":
        from ds4agent.tui.widgets.session_picker import SessionPicker

        return self.screen if isinstance(self.screen, SessionPicker) else None

    # --- what the app provides -------------------------------------------------------------------

    @property
    def _main_composer(self) -> Composer:
        return self.screen_stack[0].query_one(Composer)

    @property
    def _status(self) -> StatusLine:
        return self.screen_stack[0].query_one(StatusLine)

    @property
    def _folder(self) -> Path:
        return Path(self.record.cwd or ".")

    async def _say(self, text: str, level: str = "info") -> None:
        await self.controller.say(text, level)

    def show_hint(self, hint: str, seconds: float = 2.0) -> None:
        """Show a few words in the status line for a moment."""
        self._status.show_hint(hint, seconds)
