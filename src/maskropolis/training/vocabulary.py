"""Vocabularies learnt from the training text: word pieces (BERT) or byte-level pairs (RoBERTa), with `tokenizers`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from maskropolis.errors import InputError, unknown_name

_BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
_ROBERTA = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}


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
    needed = _pieces_for_characters(tokenizer, lines()) + len(_BERT)
    _require(size, needed, "every character at the start of a word and inside one")
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=list(_BERT.values()), show_progress=False)
    tokenizer.train_from_iterator(lines(), trainer)
    return tokenizer, _BERT


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


def _pieces_for_characters(tokenizer: Tokenizer, lines: Iterable[str]) -> int:
    """How many one-character pieces the text needs: `x` where it begins a word, `##x` where it does not."""
    pieces: set[str] = set()
    for line in lines:
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(line)):
            pieces.add(word[0])
            pieces.update(f"##{character}" for character in word[1:])
    return len(pieces)


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
