"""A tokenizer for SMILES and reaction SMILES over a plain `vocab.txt`, as chemistry BERTs use it.

The splitting expression is that of Schwaller et al. (2019), Molecular Transformer, ACS Cent. Sci. 5, 1572.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PATTERN = r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"


def smiles_tokenizer(vocabulary_file: Path) -> Any:
    """A `PreTrainedTokenizerFast` that splits SMILES by `PATTERN` and joins tokens without spaces."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = vocabulary_file.read_text(encoding="utf-8").splitlines()
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")]
    )
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        name_or_path=str(vocabulary_file),
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
