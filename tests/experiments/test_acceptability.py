"""Minimal pairs: rules spoil what they should and leave what is doubtful; accuracy; the command; what is quoted."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
from scripts import EXPERIMENTS, ROOT, command

run = command("acceptability")

from accuracy import accuracy, disagreements, right  # noqa: E402
from minimal_pairs import RULES, MinimalPair, Nouns, from_books  # noqa: E402

from maskropolis import score  # noqa: E402

HERE = EXPERIMENTS / "acceptability"
EXCERPT = ROOT / "tests/data/time_machine.txt"
NOUNS = Nouns(frozenset({"dog", "town", "day"}), frozenset())


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("verb after a pronoun", "But he was old, and we were not.", ["But he were old, and we were not.",]),
        ("verb after a pronoun", "She said that they have gone.", ["She said that they has gone."]),
        ("verb after a pronoun", "If he were here, as he was once, and she was not.", []),
        ("verb after a noun", "The dog was old.", ["The dog were old."]),
        ("verb after a noun", "The dogs have slept.", ["The dogs has slept."]),
        ("verb after a noun", "The crowd was large.", []),
        ("number of a determiner", "In this town those dogs sleep.", ["In these town those dogs sleep.",
                                                                    "In this town that dogs sleep."]),
        ("number of a determiner", "This was said, and that dog slept.", []),
        ("noun after a numeral or determiner", "Two dogs slept.", []),
        ("noun after a numeral or determiner", "Two dogs were there.", ["Two dog were there."]),
        ("order of article and next word", "He saw the old dog.", ["He saw old the dog."]),
        ("order of preposition and article", "He sat in the sun.", ["He sat the in sun."]),
    ],
)  # fmt: skip
def test_a_rule_spoils_what_is_certain_and_leaves_the_rest(kind, good, bad):
    found = list(RULES[kind](good, NOUNS))
    assert [one for one in bad if one not in found] == [] and (bad or not found)
    assert good not in found


def test_after_pronoun_leaves_and_joined_subjects():
    assert list(RULES["verb after a pronoun"]("John and he was there, though it was late.", NOUNS)) == []


def test_pairs_come_from_the_seed_and_differ_by_one_word_or_one_exchange():
    found = list(run.common.sentences([EXCERPT]))
    made = from_books(found, 10, 0)
    assert made == from_books(found, 10, 0) != from_books(found, 10, 1)
    assert len({pair.kind for pair in made}) >= 4 and all(
        pair.good in dict.fromkeys(t for _, t in found) for pair in made
    )
    for pair in made:
        good, bad = pair.good.split(), pair.bad.split()
        different = [(a, b) for a, b in zip(good, bad, strict=True) if a != b]
        moved = pair.kind.startswith("order")
        assert len(different) == 2 if moved else len(different) == 1
        if moved:
            letters = ["".join(filter(str.isalpha, word)) for word in different[0]]
            assert letters == ["".join(filter(str.isalpha, word)) for word in reversed(different[1])]


def test_accuracy_has_the_wilson_interval():
    made = accuracy([True] * 30 + [False] * 10)
    z, n, p = 1.959963985, 40, 0.75
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert made["accuracy"] == 0.75 and made["right"] == 30 and made["pairs"] == 40
    assert made["low"] == pytest.approx((middle - half) / (1 + z * z / n), abs=1e-4)
    assert made["high"] == pytest.approx((middle + half) / (1 + z * z / n), abs=1e-4)


def test_equal_scores_are_wrong_and_energies_prefer_the_lower():
    assert right("pll", [-1, -2, -3], [-2, -2, -1]) == [True, False, False]
    assert right("raw", [-1, -2, -3], [-2, -2, -1]) == [False, False, True]


def test_disagreements_by_the_exact_test_of_mcnemar():
    first, second = [True] * 10 + [False], [False] * 9 + [True, True]
    (found,) = disagreements({"pll": first, "raw": second})
    assert (found["only_first"], found["only_second"]) == (9, 1)
    assert found["p"] == pytest.approx(2 * (1 + 10) / 2**10, abs=1e-5)


def test_pairs_from_books_and_templates_are_read_as_they_were_written(tmp_path):
    made = run.make_pairs(EXCERPT, tmp_path, 2, 0)
    assert {pair.source for pair in made} == {"time_machine", "templates"}
    run.write_pairs(tmp_path / "pairs.jsonl", made)
    assert run.read_pairs(tmp_path / "pairs.jsonl") == made


def test_the_command_scores_the_pairs_that_are_there(tmp_path, tiny_folder):
    pairs = [MinimalPair("order", "book", "the cat sat on a mat", f"cat the sat on {letter} mat") for letter in "abcd"]
    pairs += [MinimalPair("verb", "templates", "unhappy cat", "the mat unhappying")]
    run.write_pairs(tmp_path / "pairs.jsonl", pairs)
    run.main(["--model", str(tiny_folder), "--out", str(tmp_path)])
    found = json.loads((tmp_path / "results.json").read_text())
    assert (found["pairs"], found["from_books"]) == (5, 4) and set(found["all"]) == set(run.NAMES)
    assert found["all"]["pll"] == found["all"]["norm"] and found["kinds"]["order"]["raw"]["pairs"] == 4
    scores = score([text for pair in pairs for text in (pair.good, pair.bad)], str(tiny_folder), metric="all")
    lower = [good.raw_energy < bad.raw_energy for good, bad in zip(scores[::2], scores[1::2], strict=True)]
    assert found["all"]["raw"]["right"] == sum(lower)
    assert (tmp_path / "results.md").read_text() == run.table(found)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [([], "there is no"), (["--books", "nowhere.tar.xz"], "there is no file or folder 'nowhere.tar.xz'")],
)
def test_wrong_input_is_one_line(tmp_path, capsys, arguments, said):
    with pytest.raises(SystemExit) as stopped:
        run.main([*arguments, "--out", str(tmp_path)])
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and said in error and error.count("\n") == 1


def test_another_folder_of_books_is_refused(tmp_path, capsys):
    for number in range(25):
        (tmp_path / f"book-{number}.txt").write_text("A dog slept.\n")
    with pytest.raises(SystemExit):
        run.main(["--books", str(tmp_path), "--out", str(tmp_path / "out")])
    assert "does not hold the books of storybook" in capsys.readouterr().err


def test_the_committed_results_are_those_of_the_committed_pairs():
    pairs, results = run.read_pairs(HERE / "pairs.jsonl"), json.loads((HERE / "results.json").read_text())
    digest = hashlib.sha256("".join(f"{p.good}\n{p.bad}\n" for p in pairs).encode()).hexdigest()[:12]
    assert len(pairs) == results["pairs"] >= 500 and f"pairs:{len(pairs)}@{digest}" in results["signature"]
    assert (HERE / "results.md").read_text() == run.table(results)
