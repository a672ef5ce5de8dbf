"""The watchmen: when they speak, and when they must not."""

from ds4agent.agent.guards import CallHistory, RepetitionWatch


def watch(ids: list[int]) -> tuple[int, bool]:
    guard = RepetitionWatch()
    most = 0
    for token_id in ids:
        guard.add(token_id)
        most = max(most, guard.repeated_tokens())
    return most, guard.is_hopeless(most)


def test_call_history_when_nothing_changes_counts_up() -> None:
    history = CallHistory()
    counts = [history.count("bash", {"command": "make"}, "fail", changed=False) for _ in range(3)]
    assert counts == [1, 2, 3]
    assert history.count("bash", {"command": "make"}, "other", changed=False) == 1


def test_call_history_when_a_file_changes_in_between_starts_anew() -> None:
    history = CallHistory()
    for edit in range(5):
        assert history.count("bash", {"command": "make"}, "fail", changed=False) == 1
        history.count("edit", {"n": edit}, "ok", changed=True)


def test_call_history_when_the_same_write_repeats_counts_it() -> None:
    history = CallHistory()
    counts = [history.count("write", {"path": "a"}, "ok", changed=True) for _ in range(3)]
    assert counts == [1, 2, 3]


def test_repetition_when_there_is_none_is_silent() -> None:
    assert watch(list(range(5000))) == (0, False)


def test_repetition_when_short_is_silent() -> None:
    assert watch(list(range(500)) + [7] * 200) == (0, False)


def test_repetition_of_a_phrase_is_noticed_and_then_hopeless() -> None:
    phrase = [5, 6, 7, 8, 9, 10, 11]
    assert 256 <= watch(list(range(300)) + phrase * 50)[0] < 2048
    assert watch(list(range(300)) + phrase * 400)[1]
