"""Rules: what they fit, and above all what they must not."""

import pytest

from ds4agent.errors import ConfigError
from ds4agent.permissions.rules import OwnedRule, Rule, Verdict, judge


@pytest.mark.parametrize(
    ("text", "subject", "is_fitting"),
    [
        ("bash(git status*)", "git status", True),
        ("bash(git status*)", "git status --short", True),
        ("bash(git status*)", "git status; rm -rf .", False),
        ("bash(git status*)", "git status && rm -rf .", False),
        ("bash(git status*)", "git status | sh", False),
        ("bash(git status*)", "git status $(rm -rf .)", False),
        ("bash(git status*)", "git status `rm -rf .`", False),
        ("bash(git status*)", "git status > ~/.bashrc", False),
        ("bash(git status*)", "git status\nrm -rf .", False),
        ("bash(git status*)", "git status \\\nrm", False),
        ("bash(git status*)", "sudo git status", False),
        ("bash(=a; b)", "a; b", True),
        ("bash(=ls *)", "ls a", False),
        ("bash(*)", "ls -l", True),
        ("bash", "ls; rm", True),
        ("*(make test)", "make test", True),
        ("bash(a.c)", "abc", False),
    ],
)
def test_allowing_rule_fits_one_simple_command(text, subject, is_fitting) -> None:
    rule = Rule.parse(text)
    assert rule.fits("bash", subject, is_command=True, verdict=Verdict.ALLOW) is is_fitting


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "cd a && git push -f",
        "(git push)",
        "true | git push",
        "x=$(git push)",
        "a\ngit push",
    ],
)
def test_denying_rule_fits_each_part_of_a_line(command) -> None:
    rule = Rule.parse("bash(git push*)")
    assert rule.fits("bash", command, is_command=True, verdict=Verdict.DENY)


@pytest.mark.parametrize(
    ("pattern", "path", "is_fitting"),
    [
        ("src/**", "src/a/b.py", True),
        ("src/**", "src2/a.py", False),
        ("*.py", "a.py", True),
        ("*.py", "a/b.py", False),
        ("**/*.py", "a/b.py", True),
        ("**/*.py", "b.py", True),
        ("a?.txt", "ab.txt", True),
        ("a?.txt", "a/.txt", False),
        ("a+b", "a+b", True),
        ("a+b", "aab", False),
    ],
)
def test_path_patterns(pattern, path, is_fitting) -> None:
    rule = Rule("edit", pattern)
    assert rule.fits("edit", path, is_command=False, verdict=Verdict.ALLOW) is is_fitting
    assert not rule.fits("write", path, is_command=False, verdict=Verdict.ALLOW)


def test_strictest_rule_that_fits_decides() -> None:
    rules = [
        OwnedRule(Verdict.ALLOW, Rule("bash"), "a"),
        OwnedRule(Verdict.DENY, Rule("bash", "rm *"), "b"),
        OwnedRule(Verdict.ASK, Rule("*", "rm *"), "c"),
    ]
    assert judge(rules, "bash", "rm x", is_command=True).origin == "b"
    assert judge(rules, "bash", "ls", is_command=True).verdict is Verdict.ALLOW
    assert judge(rules, "edit", "ls", is_command=False) is None


@pytest.mark.parametrize("text", ["", "bash()", "bash(x", "a b", "bash(x) y", "(x)"])
def test_what_is_no_rule_is_refused(text) -> None:
    with pytest.raises(ConfigError, match="no rule"):
        Rule.parse(text)


@pytest.mark.parametrize("text", ["bash", "bash(a (b) c)", "*(x)", "srv.tool(y)", "edit(=a\nb)"])
def test_rule_reads_back_what_it_writes(text) -> None:
    assert str(Rule.parse(text)) == text
