"""Two classifiers of authors: the expert, from the body of storybook, and its judge, from another encoder.

Both keep the lower layers of their encoder and are fine-tuned on single sentences, no sentence for both. Accuracy is
measured on books that neither was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from passages import AUTHORS, Passage

from maskropolis.models.huggingface.quiet import quiet

LAYERS, WIDTH, ROWS = 4, 40, 32
LABELS = tuple(AUTHORS)


def train(start: Path, passages: Sequence[Passage], steps: int, seed: int, folder: Path) -> None:
    """Fine-tune the encoder in `start` and save it to `folder`; the folder is there only when it is complete."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(start)
    with quiet():
        model = AutoModelForSequenceClassification.from_pretrained(
            start,
            dtype=torch.float32,
            num_hidden_layers=LAYERS,
            id2label=dict(enumerate(LABELS)),
            label2id={label: index for index, label in enumerate(LABELS)},
        )
    encoded = tokenizer([p.text for p in passages], truncation=True, max_length=WIDTH, return_token_type_ids=False)
    rows = [
        {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": LABELS.index(passage.author)}
        for ids, passage in zip(encoded["input_ids"], passages, strict=True)
    ]
    arguments = TrainingArguments(
        output_dir=str(folder.with_name(folder.name + ".trainer")),
        max_steps=steps,
        per_device_train_batch_size=ROWS,
        learning_rate=3e-4,
        warmup_steps=max(1, steps // 10),
        weight_decay=0.01,
        seed=seed,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        logging_steps=max(1, steps // 5),
        disable_tqdm=True,
    )
    collator = DataCollatorWithPadding(tokenizer)
    Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collator).train()
    rough = folder.with_name(folder.name + ".partial")
    with quiet():
        model.save_pretrained(rough)
        tokenizer.save_pretrained(rough)
    rough.rename(folder)


class Author:
    """A trained classifier: log-probabilities of the labels of texts."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        with quiet():
            self.model: Any = AutoModelForSequenceClassification.from_pretrained(folder, use_safetensors=True).eval()

    def __call__(self, texts: Sequence[str]) -> torch.Tensor:
        """[N, labels] log-probabilities."""
        found = [torch.empty(0, len(LABELS))]
        with torch.inference_mode():
            for first in range(0, len(texts), ROWS):
                part = list(texts[first : first + ROWS])
                inputs = self.tokenizer(part, padding=True, return_tensors="pt", return_token_type_ids=False)
                found.append(self.model(**inputs).logits.log_softmax(-1))
        return torch.cat(found)

    def says(self, texts: Sequence[str]) -> list[str]:
        """The likeliest author of each text."""
        return [LABELS[index] for index in self(texts).argmax(1).tolist()]


def right(author: Author, passages: Sequence[Passage]) -> list[bool]:
    """Whether each passage is given to its author. Text is lower-cased first, as the chains write."""
    said = author.says([passage.text.lower() for passage in passages])
    return [found == passage.author for found, passage in zip(said, passages, strict=True)]
