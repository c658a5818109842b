"""One vocabulary of byte-pair pieces for both languages, learnt with `tokenizers`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from maskropolis.errors import InputError

SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>", "bos_token": "<s>"}


def learn_joint(texts: Iterable[str], size: int, lowercase: bool = False) -> Any:
    """A fast tokenizer of at most `size` pieces. Spaces become part of the pieces (▁), so text comes back as it was.

    Raises `InputError` if `size` leaves no room for pieces beyond the special tokens.
    """
    if size <= len(SPECIAL) + 1:
        raise InputError(f"a vocabulary of {size} is too small; expected more than {len(SPECIAL) + 1}")
    inner = Tokenizer(models.BPE(unk_token=SPECIAL["unk_token"], fuse_unk=False))
    steps = [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    inner.normalizer = normalizers.Sequence(steps)
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL.values()), show_progress=False, limit_alphabet=max(1, size // 4)
    )
    inner.train_from_iterator(texts, trainer)
    end = SPECIAL["eos_token"]
    inner.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, inner.token_to_id(end))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, **SPECIAL)
