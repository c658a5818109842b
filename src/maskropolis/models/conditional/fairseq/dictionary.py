"""Dictionaries of the Mask-Predict fork of fairseq (`symbol count` a line) as tokenizers.

Ids: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, `<mask>` 4, then the lines in order. Sub-words are those of subword-nmt: a
piece that goes on ends in `@@`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from maskropolis.errors import InputError
from maskropolis.records import read_lines

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BOS, PAD, EOS, UNK, MASK = range(5)
_END_OF_WORD = "</w>"


def read_dictionary(path: Path) -> list[str]:
    """All symbols by id. Raises `InputError` naming the line at fault."""
    symbols = list(SPECIAL)
    for number, line in read_lines(str(path)):
        symbol, _, count = line.rpartition(" ")
        if not symbol or not count.isdecimal():
            raise InputError(f"{path}, line {number} is no dictionary entry; expected 'symbol count'")
        symbols.append(symbol)
    return symbols


def tokenizer_of(symbols: list[str], codes: Path | None = None) -> Any:
    """A fast tokenizer: with byte-pair `codes` it splits words itself, else symbols are what stands between spaces."""
    inner = _words(symbols) if codes is None else _pieces(symbols, codes)
    inner.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
        mask_token="<mask>",
    )  # fmt: skip


def _words(symbols: list[str]) -> Tokenizer:
    inner = Tokenizer(models.WordLevel({symbol: i for i, symbol in enumerate(symbols)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return inner


def _pieces(symbols: list[str], codes: Path) -> Tokenizer:
    """subword-nmt marks pieces that go on (`ab@@`), `tokenizers` those that end a word (`ab</w>`): renamed, ids kept.

    A merge that leads to a piece outside the dictionary is left out; subword-nmt would split such a piece again.
    """
    vocabulary = {_marked(symbol, i): i for i, symbol in enumerate(symbols)}
    merges = []
    for number, line in read_lines(str(codes)):
        if line.startswith("#version") or not line.strip():
            continue
        parts = line.split(" ")
        if len(parts) != 2:
            raise InputError(f"{codes}, line {number} is no merge of two pieces")
        if all(piece in vocabulary for piece in (*parts, "".join(parts))):
            merges.append((parts[0], parts[1]))
    inner = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", end_of_word_suffix=_END_OF_WORD, fuse_unk=True))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.decoder = decoders.BPEDecoder(suffix=_END_OF_WORD)
    return inner


def _marked(symbol: str, index: int) -> str:
    if index < len(SPECIAL):
        return symbol
    return symbol.removesuffix("@@") if symbol.endswith("@@") and symbol != "@@" else symbol + _END_OF_WORD
