"""What is particular to training a conditional masked LM: its network, its loss, and translating with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from maskropolis.decoders.mask_predict import best_of, mask_predict
from maskropolis.models.conditional.config import ConditionalConfig
from maskropolis.models.conditional.encoder_decoder import ConditionalMaskedLM
from maskropolis.models.conditional.network import ConditionalNetwork
from maskropolis.training.objectives.cmlm import Copies, Masked, Tokens, mask
from maskropolis.training.objectives.smoothing import projected_cross_entropy
from maskropolis.training.parallel.batches import PairBatch
from maskropolis.training.parallel.options import ParallelOptions

_CHUNK = 128  # sentences translated together


class CmlmTask:
    """See `maskropolis.training.parallel.run.Task`."""

    card_kind = "conditional masked language model"

    def __init__(self, options: ParallelOptions) -> None:
        self.options = options

    def network(self, tokenizer: Any) -> ConditionalNetwork:
        """Random weights drawn from the seed."""
        o = self.options
        torch.manual_seed(o.seed)
        config = ConditionalConfig(
            vocab_size=len(tokenizer), d_model=o.width, heads=o.heads, feed_forward=o.feed_forward,
            encoder_layers=o.encoder_layers, decoder_layers=o.decoder_layers, dropout=o.dropout,
            max_source_positions=o.longest, max_target_positions=o.longest,
            pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
            unk_token_id=tokenizer.unk_token_id, mask_token_id=tokenizer.mask_token_id,
        )  # fmt: skip
        return ConditionalNetwork(config)

    def longest(self, network: ConditionalNetwork) -> tuple[int, int]:
        """Most tokens of a source and of a target."""
        return network.config.max_source_positions, network.config.longest_target

    def prepare(self, network: ConditionalNetwork, batch: PairBatch, random: np.random.Generator) -> Copies:
        c = network.config
        tokens = Tokens(c.mask_token_id, c.eos_token_id, c.pad_token_id, c.end)
        return Copies([mask(batch, tokens, random) for _ in range(self.options.copies)])

    def loss(self, network: ConditionalNetwork, batch: PairBatch, made: Copies, forward: Any) -> tuple[Tensor, int]:
        """(sum of the losses of a share of a batch, masked tokens in the share)."""
        first = made.parts[0]
        device = network.embed.weight.device
        source = torch.from_numpy(batch.source).to(device)
        target = torch.from_numpy(np.concatenate([part.target for part in made.parts])).to(device)
        seen = _seen(np.tile(first.lengths, len(made.parts)), target)
        chosen = torch.from_numpy(made.chosen).to(device)
        labels = torch.cat([_labels(batch, part, network.config.eos_token_id) for part in made.parts]).to(device)
        hidden, lengths = forward(source, _seen(batch.source_lengths, source), target, seen, chosen)
        words = projected_cross_entropy(
            hidden, network.embed.weight, network.output_bias, labels, self.options.label_smoothing
        )
        counted = torch.from_numpy(first.counted).to(device)
        return words + F.cross_entropy(lengths.float(), counted, reduction="sum"), int(chosen.sum())

    def translate(self, network: ConditionalNetwork, tokenizer: Any, texts: Sequence[str]) -> list[str]:
        """Mask-Predict with the likeliest length."""
        model = ConditionalMaskedLM(network, tokenizer)
        sources = [tokenizer(text)["input_ids"][: network.config.max_source_positions] for text in texts]
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        found = [""] * len(sources)
        for first in range(0, len(order), _CHUNK):
            some = order[first : first + _CHUNK]
            bound = model.bind([sources[i] for i in some])
            lengths = [one[0] for one in bound.predicted_lengths(1)]
            blank = bound.blank(range(len(some)), lengths)
            filled = mask_predict(bound, blank, self.options.validation_iterations, bound.decodable)
            for place in best_of(filled.average, list(range(len(some)))):
                found[some[place]] = model.text(bound.targets(filled.sequences.rows(torch.tensor([place])))[0])
        return found

    def signature(self) -> str:
        return f"decoder:mask-predict({self.options.validation_iterations})|lengths:1"


def _seen(lengths: np.ndarray, tokens: Tensor) -> Tensor:
    """[N, T] bool, True at real tokens."""
    columns = torch.arange(tokens.shape[1], device=tokens.device)
    return columns[None] < torch.from_numpy(lengths).to(tokens.device)[:, None]


def _labels(batch: PairBatch, made: Masked, end_token: int) -> Tensor:
    """[M] what stood at the chosen positions, in row order."""
    width = made.target.shape[1]
    whole = np.pad(batch.target, [(0, 0), (0, width - batch.target.shape[1])])
    if width > batch.target.shape[1]:
        whole[np.arange(len(whole)), batch.target_lengths] = end_token
    return torch.from_numpy(whole[made.chosen])
