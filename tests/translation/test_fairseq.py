"""Imported Mask-Predict checkpoints say what the original network says."""

from __future__ import annotations

import fairseq_reference as reference
import pytest
import torch

from maskropolis.errors import InputError, MaskropolisError, ModelError
from maskropolis.models.conditional.encoder_decoder import ConditionalMaskedLM
from maskropolis.models.conditional.fairseq.checkpoint import import_fairseq
from maskropolis.models.conditional.fairseq.dictionary import tokenizer_of
from maskropolis.models.conditional.loading import load_conditional
from maskropolis.searching.hypotheses import decode
from maskropolis.sequences import Sequences
from maskropolis.translation import make_decoding

WORDS = ["the", "cat", "s@@", "at", "on", "m@@", ".", "a", "madeupword0000"]
SOURCES = [[5, 6, 7, 8, 2], [5, 6, 2], [9, 12, 10, 8, 11, 6, 2]]
TARGETS = [[4, 6, 4, 8], [12, 4], [5, 4, 7, 8, 9, 2]]


def checkpoint(folder, pre_norm=False):
    made = reference.weights(5 + len(WORDS), 16, 24, 2, 20, pre_norm)
    return reference.write(folder, made, 2, WORDS), reference.Reference(made, 2, 2)


@pytest.mark.parametrize("pre_norm", [False, True])
def test_logits_and_lengths_are_those_of_the_original(tmp_path, pre_norm):
    path, original = checkpoint(tmp_path, pre_norm)
    found = import_fairseq(path)
    bound = ConditionalMaskedLM(found.network, found.tokenizer).bind(SOURCES)
    rows = Sequences.from_lists(TARGETS, [[True] * len(t) for t in TARGETS], padding=1)
    rows = Sequences(rows.tokens, rows.free, rows.attention, torch.arange(3))
    ours = bound.logits(rows, torch.arange(6).expand(3, -1))
    for i, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        logits, lengths = original(source, target)
        assert (ours[i, : len(target)] - logits).abs().max() < 1e-4
        assert bound.predicted_lengths(5)[i] == [max(2, n) for n in lengths.topk(5).indices.tolist()]


def test_saved_it_translates(tmp_path):
    path, _ = checkpoint(tmp_path)
    found = import_fairseq(path)
    found.network.save_pretrained(tmp_path / "model")
    found.tokenizer.save_pretrained(tmp_path / "model")
    model = load_conditional(str(tmp_path / "model"))
    assert model.source_ids("the cat s@@ at unseen", "line 1") == [5, 6, 7, 8, 3, 2]
    assert model.text([5, 6, 7, 8, 2]) == "the cat sat"
    assert not model.allowed[13] and not model.allowed[2] and model.allowed[5]
    bound = model.bind(SOURCES)
    for settings in ({"iterations": 4}, {"decoder": "mh", "sweeps": 2}, {"decoder": "mh", "start": "greedy"}):
        best = decode(bound, [1, 2, 3], make_decoding(**settings)).best
        assert all(one[0].tokens and 2 not in one[0].tokens for one in best)


def test_byte_pair_codes_split_words(tmp_path):
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.2\ns a\nc a\nca t</w>\na t</w>\n")
    symbols = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "cat", "s@@", "at", "c@@", "ca@@", "a@@", "t"]
    tokenizer = tokenizer_of(symbols, codes)
    assert tokenizer("cat sat")["input_ids"] == [5, 6, 7, 2]
    assert tokenizer.decode([5, 6, 7, 2], skip_special_tokens=True) == "cat sat"


def test_bad_checkpoints_are_one_line(tmp_path):
    path, _ = checkpoint(tmp_path)
    with pytest.raises(ModelError, match="no checkpoint"):
        import_fairseq(tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ModelError, match="cannot be loaded as tensors only"):
        import_fairseq(tmp_path / "text.pt")
    torch.save({"model": {"encoder.embed_tokens.weight": torch.ones(3, 2)}}, tmp_path / "half.pt")
    with pytest.raises(ModelError, match="not a Mask-Predict model"):
        import_fairseq(tmp_path / "half.pt")
    (tmp_path / "short.txt").write_text("the 3\n")
    with pytest.raises(ModelError, match="6 symbols and the checkpoint embeds 14"):
        import_fairseq(path, tmp_path / "short.txt")
    (tmp_path / "odd.txt").write_text("the\n")
    with pytest.raises(InputError, match="line 1 is no dictionary entry"):
        import_fairseq(path, tmp_path / "odd.txt")


class Evil:
    """Would run code when unpickled."""

    def __reduce__(self):
        return print, ("run",)


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, capsys):
    torch.save({"model": {}, "args": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(MaskropolisError, match="tensors only"):
        import_fairseq(tmp_path / "evil.pt")
    assert "run" not in capsys.readouterr().out
