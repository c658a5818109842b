"""`translate`, `rescore` and `import-fairseq` as a person meets them."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import sys

import fairseq_reference
import pytest
import tiny_conditional
import typer

from maskropolis import cli, translation
from maskropolis.app.train import train
from maskropolis.runs import line_output
from maskropolis.training.parallel.options import ParallelOptions


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A saved tiny model in `model`, sources in `a.txt`, in the working directory."""
    made = tiny_conditional.model()
    made.network.save_pretrained(tmp_path / "model")
    tiny_conditional.tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "a.txt").write_text("a b\n\nc c a b\nb\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch, capsys):
    def made(*arguments, stdin=None):
        monkeypatch.setattr(sys, "argv", ["maskropolis", *map(str, arguments)])
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        said = capsys.readouterr()
        return exit_.value.code or 0, said.out, said.err

    return made


def test_lines_in_lines_out_in_order(folder, run):
    code, out, err = run("translate", "a.txt", "-m", "model")
    assert code == 0 and len(out.splitlines()) == 4 and out.splitlines()[1] == ""
    assert "decoder:mask-predict(10)" in err and "3 sentences" in err
    assert run("translate", "-m", "model", stdin=(folder / "a.txt").read_bytes())[1] == out
    (folder / "a.txt.gz").write_bytes(gzip.compress((folder / "a.txt").read_bytes()))
    assert run("translate", "a.txt.gz", "-m", "model")[1] == out


def test_nothing_in_nothing_out(folder, run):
    assert run("translate", "-m", "model", stdin=b"")[:2] == (0, "")
    assert run("translate", "-m", "model", stdin=b"\n\n")[:2] == (0, "\n\n")


def test_json_lines_hold_n_best_lists_and_samples(folder, run):
    more = ["--decoder", "mh", "--n-best", 3, "--samples", 2, "--sweeps", 4]
    code, _, err = run("translate", "a.txt", "-m", "model", *more, "-o", "out.jsonl")
    lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert code == 0 and [line["line"] for line in lines] == [1, 2, 3, 4] and lines[1]["candidates"] == []
    assert all(len(line["candidates"]) == 3 for line in lines if line["source"])
    assert all(len(line["samples"]) == 6 for line in lines if line["source"]) and "accepted" in err


def test_a_job_that_was_stopped_goes_on(folder, run, monkeypatch):
    (folder / "long.txt").write_text("a b\nb c\n\n" * 8)
    whole = run("translate", "long.txt", "-m", "model", "--decoder", "mh", "--sweeps", 2)[1]
    monkeypatch.setattr(translation, "CHUNK", 4)
    chunks = translation._translate
    calls = []

    def stop_at_the_fourth(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return chunks(*arguments)

    monkeypatch.setattr(translation, "_translate", stop_at_the_fourth)
    given = ["translate", "long.txt", "-m", "model", "--decoder", "mh", "--sweeps", 2, "-o", "out.txt"]
    code, _, err = run(*given)
    assert code == 130 and "go on with --resume" in err and not (folder / "out.txt").exists()
    note = json.loads((folder / "out.txt.partial.json").read_text())
    assert note["lines"] == 12
    with (folder / "out.txt.partial").open("a") as file:
        file.write("half a li")
    monkeypatch.setattr(translation, "_translate", chunks)
    assert run(*given)[0] == 2
    code, _, err = run(*given, "--resume", "--seed", 3)
    assert code == 2 and "made in another way" in err
    code, _, err = run(*given, "--resume")
    assert code == 0 and "resumed after 12 lines" in err
    assert (folder / "out.txt").read_text() == whole and not (folder / "out.txt.partial").exists()
    assert "nothing to resume" in run(*given[:-1], "other.txt", "--resume")[2]


def test_hypotheses_are_starts_and_references_are_scored(folder, run):
    (folder / "h.txt").write_text("b b\n\na c\nc\n")
    code, out, err = run("translate", "a.txt", "-m", "model", "--decoder", "mh", "--hypotheses", "h.txt", "--sweeps", 0,
                         "--reference", "h.txt")  # fmt: skip
    assert code == 0 and out == (folder / "h.txt").read_text() and "chrF 100.00" in err
    (folder / "short.txt").write_text("b b\n")
    code, _, err = run("translate", "a.txt", "-m", "model", "--decoder", "mh", "--hypotheses", "short.txt")
    assert code == 2 and "has 4 lines and 'short.txt' has 1" in err
    given = ["translate", "-m", "model", "--decoder", "mh", "--hypotheses", "short.txt"]
    code, _, err = run(*given, stdin=(folder / "a.txt").read_bytes())
    assert code == 2 and "'short.txt' ends before line 2" in err
    assert (
        "has 4 lines and 'short.txt' has 1" in run("translate", "a.txt", "-m", "model", "--reference", "short.txt")[2]
    )


def test_a_plain_model_needs_a_separator(folder, run, tiny_folder):
    code, _, err = run("translate", "a.txt", "-m", tiny_folder)
    assert code == 2 and "is not a conditional model (bert)" in err and "--separator" in err
    (folder / "e.txt").write_text("the cat sat\n")
    code, out, _ = run("translate", "e.txt", "-m", tiny_folder, "--separator", "", "--length-ratio", 0.7)
    assert code == 0 and len(out.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["translate", "none.txt", "-m", "model"], "'none.txt' does not exist"),
        (["translate", "a.txt", "-m", "nowhere"], "no model 'nowhere'"),
        (["translate", "a.txt"], "--model"),
        (["translate", "long.txt", "-m", "model"], "long.txt, line 2 has 31 tokens, more than the model's limit of 12"),
        (["translate", "latin.txt", "-m", "model"], "latin.txt, line 1 is not valid UTF-8"),
        (["translate", "a.txt", "-m", "model", "--decoder", "mhh"], "did you mean 'mh'"),
        (
            ["translate", "a.txt", "-m", "model", "--decoder", "mh", "--kernel", "tempering:levels=3,adapt=9"],
            "leave adapt away",
        ),
        (["translate", "a.txt", "-m", "model", "--n-best", 3], "need JSON lines"),
        (["translate", "a.txt", "-m", "model", "--answer", "best"], "unknown answer"),
        (["translate", "a.txt", "-m", "model", "-o", "a.txt"], "exists; pass --overwrite"),
        (["translate", "a.txt", "-m", "model", "--hypotheses", "a.txt"], "go with no other --start"),
        (["rescore", "bad.nbest", "-m", "model", "--source", "a.txt"], "bad.nbest, line 1 is no n-best line"),
        (["rescore", "far.nbest", "-m", "model", "--source", "a.txt"], "names source 10; there are 4"),
        (["rescore", "good.nbest", "-m", "model"], "does not hold its source"),
        (
            ["rescore", "good.nbest", "-m", "model", "--source", "a.txt", "--weight", 1, "--tune", "x"],
            "one of --weight",
        ),
        (["rescore", "good.nbest", "-m", "model", "--source", "a.txt", "--tune", "x"], "--tune needs --tune-reference"),
        (["import-fairseq", "none.pt", "new"], "no checkpoint 'none.pt'"),
        (["import-fairseq", "none.pt", "model"], "is not empty"),
        (["train", "cmlm", "--source", "a.txt", "--target", "long.txt", "-o", "new"], "'a.txt' has 4 lines"),
        (["train", "cmlm", "--source", "a.txt", "--target", "b.txt", "-o", "new"], "'b.txt' does not exist"),
        (["train", "seq2seq", "--source", "a.txt", "--target", "a.txt", "-o", "new", "--dropout", 1], "dropout is 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder, run, arguments, says):
    (folder / "long.txt").write_text("a b\n" + "a " * 30 + "\nb\n")
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "bad.nbest").write_text("a b c\n")
    (folder / "far.nbest").write_text("9 ||| a ||| 0\n")
    (folder / "good.nbest").write_text("0 ||| a ||| -1\n")
    code, _, err = run(*arguments)
    assert code == 2 and err.strip().splitlines()[-1].startswith("error: ") and says in err


def test_what_comes_before_a_bad_line_is_kept(folder, run):
    (folder / "long.txt").write_text("a b\n" + "a " * 30 + "\nb\n")
    code, _, err = run("translate", "long.txt", "-m", "model", "-o", "out.txt")
    assert code == 2 and "go on with --resume" in err
    assert len((folder / "out.txt.partial").read_text().splitlines()) == 1
    code, _, err = run("translate", "long.txt", "-m", "model", "-o", "out.txt", "--resume", "--skip-bad")
    assert code == 0 and "left empty" in err
    assert [bool(line) for line in (folder / "out.txt").read_text().splitlines()] == [True, False, True]


def test_rescoring_by_energy_by_both_and_with_a_tuned_weight(folder, run):
    lists = "0 ||| a c ||| -0.1\n0 ||| b b ||| -0.3\n0 ||| c a b ||| -0.2\n3 ||| a ||| 0\n3 ||| c ||| -5\n"
    (folder / "l.nbest").write_text(lists)
    given = ["rescore", "l.nbest", "-m", "model", "--source", "a.txt"]
    code, _, _ = run(*given, "-o", "ranked.jsonl")
    ranked = [json.loads(line) for line in (folder / "ranked.jsonl").read_text().splitlines()]
    assert code == 0 and [one["line"] for one in ranked] == [1, 2, 3, 4]
    assert [len(one["candidates"]) for one in ranked] == [3, 0, 0, 2]
    for one in ranked:
        each = [c["energy"] / c["tokens"] for c in one["candidates"]]
        assert each == sorted(each)
    assert run(*given, "--weight", 0)[1] == "a c\n\n\na\n"
    (folder / "ref.txt").write_text("b b b b b\n\n\na a a a a\n")
    code, _, err = run(*given, "--tune", "l.nbest", "--tune-source", "a.txt", "--tune-reference", "ref.txt")
    assert code == 0 and "tuned on 2 lists" in err
    same = run("translate", "a.txt", "-m", "model", "--decoder", "mh", "--n-best", 4, "--sweeps", 3, "-o", "t.jsonl")
    best = [json.loads(line)["candidates"] for line in (folder / "t.jsonl").read_text().splitlines()]
    out = run("rescore", "t.jsonl", "-m", "model")[1].splitlines()
    assert same[0] == 0 and out == [one[0]["text"] if one else "" for one in best]


def test_what_rescoring_cannot_read(folder, run):
    (folder / "l.nbest").write_text("0 ||| a z ||| -0.1\n")
    code, _, err = run("rescore", "l.nbest", "-m", "model", "--source", "a.txt")
    assert code == 0 and "source 1 or its candidates: the model does not know 'z'" in err
    (folder / "l.jsonl").write_text('{"line": 1, "source": "a", "candidates": [{"text": "a", "score": "high"}]}\n')
    code, _, err = run("rescore", "l.jsonl", "-m", "model")
    assert code == 2 and "l.jsonl, line 1 is malformed" in err and err.count("\n") == 1


def test_an_interrupt_while_writing_writes_nothing_twice(folder, run, monkeypatch):
    usual, calls = line_output.write_json, []

    def interrupted(path, value):
        calls.append(value["lines"])
        if calls[-1] and calls.count(calls[-1]) == 1 and len(calls) == 2:
            raise KeyboardInterrupt
        usual(path, value)

    (folder / "long.txt").write_text("a b\nb c\n" * 4)
    whole = run("translate", "long.txt", "-m", "model")[1]
    with monkeypatch.context() as patched:
        patched.setattr(translation, "CHUNK", 2)
        patched.setattr(line_output, "write_json", interrupted)
        assert run("translate", "long.txt", "-m", "model", "-o", "out.txt")[0] == 130
    assert len((folder / "out.txt.partial").read_text().splitlines()) <= 2
    assert run("translate", "long.txt", "-m", "model", "-o", "out.txt", "--resume")[0] == 0
    assert (folder / "out.txt").read_text() == whole


def test_a_job_is_resumed_on_the_same_input_and_in_the_same_form_only(folder, run):
    (folder / "long.txt").write_text("a b\n" + "a " * 30 + "\nb c\n")
    given = ["translate", "long.txt", "-m", "model", "-o", "out.jsonl"]
    assert run(*given)[0] == 2
    for other in (["--n-best", 2], ["--dtype", "bfloat16"], ["--detokenise"]):
        assert "made in another way" in run(*given, *other, "--resume", "--skip-bad")[2], other
    (folder / "long.txt").write_text("b b\n\nb c\n")
    assert "made in another way" in run(*given, "--resume")[2]


def test_good_lines_before_an_unreadable_one_are_translated(folder, run):
    (folder / "mixed.txt").write_bytes(b"a b\nb\n\xff\nc\n")
    code, _, err = run("translate", "mixed.txt", "-m", "model", "-o", "out.txt")
    assert code == 2 and "line 3 is not valid UTF-8" in err
    assert len((folder / "out.txt.partial").read_text().splitlines()) == 2


def test_a_hypothesis_too_long_for_its_prefix_is_one_line(folder, run, tiny_folder):
    (folder / "e.txt").write_text("the cat sat\n")
    (folder / "h.txt").write_text("the cat sat " * 20 + "\n")
    code, _, err = run(
        "translate", "e.txt", "-m", tiny_folder, "--separator", "", "--decoder", "mh", "--hypotheses", "h.txt"
    )
    assert code == 2 and err.count("\n") == 1


def test_an_imported_checkpoint_translates(folder, run):
    made = fairseq_reference.weights(8, 16, 24, 1, 20, pre_norm=False)
    path = fairseq_reference.write(folder, made, 2, ["a", "b@@", "c"])
    code, out, err = run("import-fairseq", path, "imported")
    assert code == 0 and "1 + 1 layers of width 16" in out and "split into sub-words" in err
    card = (folder / "imported" / "README.md").read_text()
    assert f"`{path.name}`" in card and "1 + 1 layers of width 16" in card and str(folder) not in card
    code, out, _ = run("translate", "a.txt", "-m", "imported", "--iterations", 3)
    assert code == 0 and len(out.splitlines()) == 4


@pytest.mark.parametrize(
    ("kind", "missing"), [("cmlm", set()), ("seq2seq", {"copies", "validation_iterations", "compile"})]
)
def test_the_training_commands_take_the_options_and_their_defaults(kind, missing):
    """Every option of `ParallelOptions` but those that the kind has no use for, with the same default."""
    command = typer.main.get_command(train).commands[kind]
    taken = {option.name: option.default for option in command.params if not option.required}
    known = {f.name: f.default for f in dataclasses.fields(ParallelOptions) if f.default is not dataclasses.MISSING}
    extra = {"resume": False, "overwrite": False, "threads": None}
    assert taken == {name: value for name, value in known.items() if name not in missing} | extra
