"""Replay: each journal entry that code reaches is replayed, new, or a mismatch."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import ReplayMismatch
from rota.model.journal import EntryKind, JournalEntry, Replay, StoredEntry, entry_label

Asked = tuple[EntryKind, str]


def stored_entries(entries: Iterable[JournalEntry]) -> list[StoredEntry]:
    """Return the entries as they are read back from the database."""
    return [
        StoredEntry(
            each.kind,
            each.name,
            each.number,
            each.position,
            each.in_main_branch,
            each.is_open,
            each.tries,
            None,
            each.result,
            each.error,
            branch_key=each.branch_key,
        )
        for each in entries
    ]


def run(
    asked: Iterable[Asked], before: Iterable[StoredEntry] = (), line: str = ""
) -> list[JournalEntry]:
    """Replay code that reaches these entries in order and then ends."""
    replay = Replay(7, before)
    entries = [replay.next_entry(kind, name, line)[0] for kind, name in asked]
    replay.check_complete()
    return entries


def keys(entries: Iterable[JournalEntry]) -> list[tuple[str, str, int, int]]:
    return [(each.kind, each.name, each.number, each.position) for each in entries]


CODE: list[Asked] = [
    ("step", "a"),
    ("value", "now"),
    ("step", "b"),
    ("step", "a"),
    ("sleep", "sleep"),
    ("wait", "a"),
    ("sleep", "sleep"),
]


def test_replay_numbers_entries_by_kind_and_name_in_order() -> None:
    assert keys(run(CODE)) == [
        ("step", "a", 1, 1),
        ("value", "now", 1, 2),
        ("step", "b", 1, 3),
        ("step", "a", 2, 4),
        ("sleep", "sleep", 1, 5),
        ("wait", "a", 1, 6),
        ("sleep", "sleep", 2, 7),
    ]


def test_replay_same_code_gets_same_entries() -> None:
    first = run(CODE)
    assert keys(run(CODE, stored_entries(first))) == keys(first)


def test_replay_returns_stored_result_and_tries() -> None:
    [entry] = run([("step", "a")])
    entry.result, entry.tries = "5", 3
    again, known = Replay(7, stored_entries([entry])).next_entry("step", "a")
    assert known is not None
    assert (known.result, known.tries, again.tries) == ("5", 3, 3)
    assert Replay(7).next_entry("step", "a")[1] is None


def test_replay_new_entries_follow_stored_entries() -> None:
    first = run(CODE[:3])
    # The order of the stored rows does not matter.
    more = run(CODE, reversed(stored_entries(first)))
    assert keys(more) == keys(run(CODE))


@pytest.mark.parametrize(
    ("code", "asked", "before"),
    [
        ([("step", "x")], "step 'x'", "step 'a'"),
        ([("step", "a"), ("step", "x")], "step 'x'", "step 'b'"),
        ([("step", "a"), ("step", "a"), ("step", "a")], "step 'a' no. 3", "step 'b'"),
        ([("sleep", "sleep")] * 3, "sleep no. 3", "step 'a'"),
        ([("wait", "x")], "wait 'x'", "step 'a'"),
        (CODE[:4], "its end", "sleep"),
        (CODE[:6], "its end", "sleep no. 2"),
        ([], "its end", "step 'a'"),
    ],
)
def test_replay_new_entry_before_stored_entry_raises_mismatch(
    code: list[Asked], asked: str, before: str
) -> None:
    with pytest.raises(ReplayMismatch) as error:
        run(code, stored_entries(run(CODE)))
    assert (error.value.actual, error.value.expected) == (asked, before)
    assert f"job 7 reached {asked}, but its journal has {before} here" in str(error.value)
    assert "rota release 7" in str(error.value)


def test_replay_added_or_removed_values_and_versions_are_accepted() -> None:
    with_values: list[Asked] = [("value", "uuid"), ("step", "a"), ("value", "now"), ("step", "b")]
    without: list[Asked] = [("step", "a"), ("step", "b")]
    run(without, stored_entries(run(with_values)))
    run(with_values, stored_entries(run(without)))
    replay = Replay(7, stored_entries(run(without)))
    replay.version("fees", in_main_branch=True)
    for kind, name in without:
        replay.next_entry(kind, name)
    replay.check_complete()


def test_replay_branches_match_in_any_order() -> None:
    code: list[tuple[Asked, str]] = [
        (("step", "load"), "1."),
        (("step", "load"), "2."),
        (("step", "parse"), "2."),  # branch 2 is faster than branch 1
        (("step", "parse"), "1."),
        (("sleep", "sleep"), "2."),
        (("value", "uuid"), "1."),
        (("sleep", "sleep"), "1."),
        (("step", "parse"), "1."),
        (("step", "parse"), ""),
    ]

    def come_to(
        order: Iterable[int], before: Iterable[StoredEntry] = ()
    ) -> dict[int, JournalEntry]:
        replay = Replay(7, before)
        return {at: replay.next_entry(*code[at][0], code[at][1])[0] for at in order}

    first = come_to(range(len(code)))
    numbers = {(each.kind, each.name, each.number) for each in first.values()}
    assert len(numbers) == len(code)  # all entries are distinct
    again = come_to([0, 3, 5, 1, 2, 6, 4, 7, 8], stored_entries(first.values()))
    for at, entry in first.items():
        assert keys([again[at]]) == keys([entry])
        assert again[at].branch_key == entry.branch_key


def test_replay_new_entry_in_branch_raises_no_mismatch() -> None:
    first = run(CODE, line="1.")
    run([("step", "x")], stored_entries(first), line="1.")
    run([("step", "x")], stored_entries(first), line="2.")
    run([], stored_entries(first))


def test_replay_unstored_entry_is_not_matched_with_its_namesake() -> None:
    """The first step was abandoned or failed: the second of that name keeps its number."""
    for line in ("", "1."):
        _, second = run([("step", "a"), ("step", "a")], line=line)
        replay = Replay(7, stored_entries([second]))
        if line:
            entry, known = replay.next_entry("step", "a", line)
            assert known is None
            assert entry.number != second.number
            assert replay.next_entry("step", "a", line)[1] is not None
        else:
            with pytest.raises(ReplayMismatch):
                replay.next_entry("step", "a", line)


def test_replay_unreached_branch_entry_does_not_block_main_branch() -> None:
    own, beside = run([("step", "a")]), stored_entries(run([("step", "b")], line="1."))
    beside[0].position = 2
    # The branch has not been reached when the main branch continues: that is no mismatch.
    run([("step", "a"), ("step", "c")], [*stored_entries(own), *beside])
    with pytest.raises(ReplayMismatch):
        run([("step", "c")], [*stored_entries(own), *beside])


@given(
    st.lists(st.tuples(st.sampled_from(["step", "sleep", "wait", "value"]), st.sampled_from("ab"))),
    st.integers(0, 10),
)
def test_replay_code_cut_anywhere_continues_with_same_entries(code: list[Asked], cut: int) -> None:
    whole = run(code)
    assert keys(run(code, stored_entries(whole[:cut]))) == keys(whole)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), st.data())
def test_replay_removed_step_always_raises_mismatch(names: list[str], data: st.DataObject) -> None:
    code: list[Asked] = [("step", name) for name in names]
    out = data.draw(st.integers(0, len(code) - 1))
    with pytest.raises(ReplayMismatch):
        run(code[:out] + code[out + 1 :], stored_entries(run(code)))


# Versions


def test_version_in_new_run_is_true_and_stored_once() -> None:
    replay = Replay(7)
    entry, goes = replay.version("fees", in_main_branch=True)
    assert entry is not None
    assert (goes, entry.kind, entry.name, entry.result) == (True, "version", "fees", "true")
    # A version is stored once.
    assert replay.version("fees", in_main_branch=True) == (None, True)


def test_version_in_run_with_later_entries_stays_false() -> None:
    replay = Replay(7, stored_entries(run([("step", "a")])))
    entry, goes = replay.version("fees", in_main_branch=True)
    assert entry is not None
    assert (goes, entry.result) == (False, "false")
    later = Replay(7, stored_entries([*run([("step", "a")]), entry]))
    assert later.version("fees", in_main_branch=True) == (None, False)
    later.next_entry("step", "a")
    assert later.version("fees", in_main_branch=True) == (None, False)


def test_version_before_stored_values_only_is_true() -> None:
    assert (
        Replay(7, stored_entries(run([("value", "now")]))).version("fees", in_main_branch=True)[1]
        is True
    )


def test_version_after_all_stored_entries_is_true() -> None:
    replay = Replay(7, stored_entries(run([("step", "a"), ("sleep", "sleep")])))
    replay.next_entry("step", "a")
    replay.next_entry("sleep", "sleep")
    assert replay.version("fees", in_main_branch=True)[1] is True


# Progress of a replay


def test_is_replaying_until_last_stored_entry_is_reached() -> None:
    replay = Replay(7, stored_entries(run([("step", "a"), ("step", "b"), ("value", "now")])))
    assert replay.is_replaying
    replay.next_entry("step", "a")
    assert replay.is_replaying
    replay.next_entry("step", "b")
    assert not replay.is_replaying
    assert not Replay(7).is_replaying


@pytest.mark.parametrize(
    ("kind", "name", "number", "said"),
    [
        ("step", "charge", 1, "step 'charge'"),
        ("step", "charge", 2, "step 'charge' no. 2"),
        ("sleep", "sleep", 1, "sleep"),
        ("sleep", "sleep", 3, "sleep no. 3"),
        ("wait", "sleep", 1, "wait 'sleep'"),
    ],
)
def test_entry_label_names_kind_name_and_number(
    kind: EntryKind, name: str, number: int, said: str
) -> None:
    assert entry_label(kind, name, number) == said
    assert str(JournalEntry(kind, name, number, 1, True)) == said
