"""Vocabularies learnt from the training text: word pieces (BERT) or byte-level pairs (RoBERTa), with `tokenizers`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from maskropolis.errors import InputError, unknown_name

_BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_ROBERTA = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
_PRIVATE = 0xF0000
"""The first code point of the private planes: no character of a text."""


def learn(lines: Callable[[], Iterator[str]], kind: str, size: int, lowercase: bool, longest: int) -> Any:
    """A fast tokenizer with at most `size` pieces. Raises `InputError` if `size` cannot hold the alphabet."""
    if kind not in KINDS:
        raise unknown_name("vocabulary", kind, KINDS)
    tokenizer, special = KINDS[kind](lines, size, lowercase)
    first, last = (tokenizer.token_to_id(special[name]) for name in ("cls", "sep"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{special['cls']} $A {special['sep']}",
        pair=f"{special['cls']} $A {special['sep']} $B:1 {special['sep']}:1",
        special_tokens=[(special["cls"], first), (special["sep"], last)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=longest,
        **{f"{name}_token": token for name, token in special.items()},
    )


def _wordpiece(lines: Callable[[], Iterator[str]], size: int, lowercase: bool) -> tuple[Tokenizer, dict[str, str]]:
    tokenizer = Tokenizer(models.WordPiece(unk_token=_BERT["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    words = _words(tokenizer, lines())
    starts, insides = {word[0] for word in words}, sorted({character for word in words for character in word[1:]})
    _require(size, len(starts) + len(insides) + len(_BERT), "every character at the start of a word and inside one")
    pieces = _learn_pieces(words, insides, size)
    tokenizer.model = models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token=_BERT["unk"])
    return tokenizer, _BERT


def _words(tokenizer: Tokenizer, lines: Iterable[str]) -> Counter[str]:
    counts = Counter[str]()
    for line in lines:
        counts.update(
            word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(line))
        )
    return counts


def _learn_pieces(words: Counter[str], insides: list[str], size: int) -> list[str]:
    """Special tokens and pieces, `##` before those inside a word.

    `WordPieceTrainer` numbers its `##` pieces in the order of a hash map, another one in every process, and breaks ties
    between pairs by those numbers. So each character inside a word is written as one of its own, from a private plane
    of Unicode, and plain pairs are learnt, whose alphabet is sorted.
    """
    inside = {character: chr(_PRIVATE + i) for i, character in enumerate(insides)}
    written = str.maketrans(inside)
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Split("\n", "removed")
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(_BERT.values()), show_progress=False)
    inner.train_from_iterator((word[0] + word[1:].translate(written) for word in words.elements()), trainer)
    read = str.maketrans({mark: character for character, mark in inside.items()})
    pieces = sorted(inner.get_vocab().items(), key=lambda entry: entry[1])
    return [("##" if ord(piece[0]) >= _PRIVATE else "") + piece.translate(read) for piece, _ in pieces]


def _byte_pairs(lines: Callable[[], Iterator[str]], size: int, lowercase: bool) -> tuple[Tokenizer, dict[str, str]]:
    tokenizer = Tokenizer(models.BPE(unk_token=_ROBERTA["unk"]))
    if lowercase:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    _require(size, len(alphabet) + len(_ROBERTA), "every byte")
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(_ROBERTA.values()),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines(), trainer)
    return tokenizer, _ROBERTA


def _require(size: int, needed: int, what: str) -> None:
    if size < needed:
        raise InputError(
            f"a vocabulary of {size} is too small for the alphabet of the text: {what} and the special tokens "
            f"take {needed}; give a larger --vocabulary-size"
        )


KINDS: dict[str, Callable[[Callable[[], Iterator[str]], int, bool], tuple[Tokenizer, dict[str, str]]]] = {
    "wordpiece": _wordpiece,
    "bpe": _byte_pairs,
}
