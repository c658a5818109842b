"""From files to token ids: every fault named with file and line, nothing lost, nothing held whole in memory."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from maskropolis.errors import InputError, RunError
from maskropolis.training.data import corpus, holding_out
from maskropolis.training.data.batches import Batches
from maskropolis.training.data.readers import find_files, read_all, read_lines
from maskropolis.training.data.sentences import is_balanced, split_sentences


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_three_kinds_of_files_say_the_same(tmp_path):
    lines = ["One paragraph.", "Another, with “quotes”."]
    text = write(tmp_path / "a.txt", "\n".join([lines[0], "", "  " + lines[1]]) + "\r\n")
    rows = write(tmp_path / "b.jsonl", "".join(json.dumps({"body": line}) + "\n" for line in lines))
    table = tmp_path / "c.parquet"
    parquet.write_table(pa.table({"body": lines}), table)
    assert find_files([tmp_path]) == [text, rows, table]
    for path in (text, rows, table):
        assert list(read_lines(path, "body")) == lines


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"fine\n\xff\xfe\n", "a.txt, line 2: not UTF-8"),
        ("a.txt", b"fine\na\0b\n", "a.txt, line 2: a NUL"),
        ("a.jsonl", '{"text": "x"}\n{"text": \n', "a.jsonl, line 2: not JSON"),
        ("a.jsonl", '{"text": "x"}\n\n{"body": "x"}\n', "a.jsonl, line 3: no field 'text'; it has 'body'"),
        ("a.jsonl", "[1]\n", "a.jsonl, line 1: no field 'text'"),
        ("a.jsonl", '{"text": 3}\n', "a.jsonl, line 1: the field 'text' is not a string"),
        ("a.parquet", b"no table", "a.parquet' is not a readable Parquet file"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, name, content, says):
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=says):
        list(read_lines(path))


def test_a_parquet_file_without_the_column_or_with_a_null(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"body": ["x", None]}), path)
    with pytest.raises(InputError, match="no column 'text'; it has 'body'"):
        list(read_lines(path))
    with pytest.raises(InputError, match="row 2"):
        list(read_lines(path, "body"))


def test_files_that_are_not_there_or_not_text(tmp_path):
    with pytest.raises(InputError, match="no file or folder"):
        find_files([tmp_path / "none.txt"])
    with pytest.raises(InputError, match="no text in the folder"):
        find_files([tmp_path])
    with pytest.raises(InputError, match="unknown kind"):
        find_files([write(tmp_path / "a.pdf", "x")])


def test_sentences_end_where_readers_end_them():
    text = "“Well,” said Mr. Smith. “Go on!” He sat… Then H. G. Wells left? Yes."
    found = [text[a:b] for a, b in split_sentences(text)]
    assert found == ["“Well,” said Mr. Smith.", "“Go on!”", "He sat…", "Then H. G. Wells left?", "Yes."]
    assert is_balanced(found[0]) and not is_balanced("“I went.")


def test_the_corpus_is_the_text_with_a_separator_after_each_paragraph(tmp_path, paragraphs, tokenizer):
    made = corpus.build(iter(paragraphs), tokenizer, tmp_path / "c")
    assert isinstance(made.ids, np.memmap) and made.ids.dtype == np.uint16
    expected = [i for line in paragraphs if line for i in [*tokenizer.encode(line, add_special_tokens=False), 3]]
    assert made.ids.tolist() == expected
    pieces = np.array(tokenizer.convert_ids_to_tokens(made.ids.tolist()))
    assert not np.char.startswith(pieces[made.starts == 1], "##").any()
    assert np.char.startswith(pieces[made.starts == 0], "##").all()
    counts = made.unigram_counts(len(tokenizer))
    assert counts.sum() == len(made) and counts[3] == made.paragraphs


def test_units_are_the_balanced_sentences(tmp_path, tokenizer):
    text = "The man stood there. “We went,” he said. “Then we saw. It was good.”"
    made = corpus.build([text], tokenizer, tmp_path / "c")
    said = [tokenizer.decode(made.ids[a : a + n]) for a, n in made.units]
    assert said == [tokenizer.decode(tokenizer.encode(s, add_special_tokens=False)) for s in
                    ("The man stood there.", "“We went,” he said.")]  # fmt: skip
    whole = corpus.build([text], tokenizer, tmp_path / "d", sentences=False)
    assert whole.units.tolist() == [[0, len(whole) - 1]]


def test_no_text_and_a_full_disk_leave_nothing_behind(tmp_path, tokenizer, monkeypatch):
    with pytest.raises(InputError, match="no text"):
        corpus.build(iter([]), tokenizer, tmp_path / "c")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus, "_write", full)
    with pytest.raises(RunError, match="disk is full"):
        corpus.build(["x"], tokenizer, tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def text(tmp_path, paragraphs, tokenizer):
    return corpus.build(iter(paragraphs), tokenizer, tmp_path / "corpus")


def test_batches_depend_on_seed_and_step_alone(text):
    one, two = (Batches(text, 16, 4, 2, 3, seed=5, alone=0.25) for _ in range(2))
    later = [two.at(step) for step in (40, 3, 39, 40)]
    assert (one.at(40).tokens == later[0].tokens).all() and (one.at(3).tokens == later[1].tokens).all()
    assert (one.at(39).tokens == later[2].tokens).all() and (one.at(40).tokens == later[3].tokens).all()
    assert (one.at(0).tokens != Batches(text, 16, 4, 2, 3, seed=6).at(0).tokens).any()


def test_a_pass_takes_every_row_once_and_the_next_pass_is_shifted(text):
    batches = Batches(text, 16, 4, 2, 3)
    steps = batches.rows_per_pass // 4
    rows = np.concatenate([batches.at(step).tokens for step in range(steps)])
    assert (rows[:, 0] == 2).all() and rows.shape == (4 * steps, 16)
    shift, order = batches._order(0)
    assert sorted(order) == list(range(batches.rows_per_pass))
    assert {tuple(row[1:]) for row in rows} <= {
        tuple(text.ids[shift + i * 15 : shift + i * 15 + 15]) for i in range(batches.rows_per_pass)
    }
    assert len({Batches(text, 16, 4, 2, 3)._order(n)[0] for n in range(8)}) > 1


def test_sentences_alone_are_whole_and_of_one_length(text):
    batches = Batches(text, 32, 4, 2, 3, alone=0.25)
    known = {tuple(text.ids[a : a + n]) for a, n in text.units}
    kinds = [batches.at(step).tokens for step in range(80)]
    alone = [tokens for step, tokens in enumerate(kinds) if step % 4 == 3]
    for tokens in alone:
        assert (tokens[:, 0] == 2).all() and (tokens[:, -1] == 3).all() and tokens.size <= 4 * 32
        assert {tuple(row[1:-1]) for row in tokens} <= known
    assert len({tokens.shape for tokens in alone}) > 3
    assert all(tokens.shape == (4, 32) for step, tokens in enumerate(kinds) if step % 4 != 3)


def test_too_little_text_for_a_row(tmp_path, tokenizer):
    made = corpus.build(["a b c"], tokenizer, tmp_path / "c")
    with pytest.raises(InputError, match="too little text"):
        Batches(made, 16, 4, 2, 3)


def test_one_file_in_twenty_is_held_out(tmp_path):
    files = [write(tmp_path / f"{n:02}.txt", f"line {n}") for n in range(40)]
    split = holding_out.drawn(files, "text", 0.05, seed=0)
    again = holding_out.drawn(files, "text", 0.05, seed=0)
    assert split.validation_files == again.validation_files and len(split.validation_files) == 2
    assert sorted([*split.training(), *split.validation()]) == sorted(f"line {n}" for n in range(40))
    assert any(holding_out.drawn(files, "text", 0.05, s).validation_files != split.validation_files for s in (1, 2))


def test_blocks_of_lines_are_held_out_of_few_files(tmp_path):
    file = write(tmp_path / "a.txt", "".join(f"line {n}\n" for n in range(2000)))
    split = holding_out.drawn([file], "text", 0.2, seed=0)
    kept, held = list(split.training()), list(split.validation())
    assert sorted(kept + held) == sorted(read_all([file])) and 0.05 < len(held) / 2000 < 0.4
    numbers = {int(line.split()[1]) // 20 for line in held}
    assert len(held) == 20 * len(numbers)


def test_text_named_twice_and_a_share_out_of_range(tmp_path):
    file = write(tmp_path / "a.txt", "x")
    with pytest.raises(InputError, match="both for training and for validation"):
        holding_out.given([file], [file], "text")
    for share in (0.0, 1.0, -1):
        with pytest.raises(InputError, match="share held out"):
            holding_out.drawn([file], "text", share, 0)
