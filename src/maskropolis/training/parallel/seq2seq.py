"""What is particular to training the autoregressive baseline: a pre-norm encoder–decoder of transformers (MBart)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import MBartConfig, MBartForConditionalGeneration

from maskropolis.decoders.beam import AutoregressiveTranslator
from maskropolis.training.objectives.seq2seq import Shifted, shift
from maskropolis.training.objectives.smoothing import projected_cross_entropy
from maskropolis.training.parallel.batches import PairBatch
from maskropolis.training.parallel.options import ParallelOptions


class Seq2SeqTask:
    """See `maskropolis.training.parallel.run.Task`."""

    card_kind = "autoregressive translation model"

    def __init__(self, options: ParallelOptions) -> None:
        self.options = options

    def network(self, tokenizer: Any) -> Any:
        """Random weights drawn from the seed; as wide and deep as a conditional masked LM of the same options."""
        o = self.options
        torch.manual_seed(o.seed)
        config = MBartConfig(
            vocab_size=len(tokenizer), d_model=o.width, max_position_embeddings=o.longest, dropout=o.dropout,
            encoder_layers=o.encoder_layers, encoder_ffn_dim=o.feed_forward, encoder_attention_heads=o.heads,
            decoder_layers=o.decoder_layers, decoder_ffn_dim=o.feed_forward, decoder_attention_heads=o.heads,
            pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id, decoder_start_token_id=tokenizer.bos_token_id,
            forced_eos_token_id=tokenizer.eos_token_id, scale_embedding=True,
        )  # fmt: skip
        config._attn_implementation = "eager"  # on the CPU faster than sdpa, forward and backward together
        return MBartForConditionalGeneration(config)

    def longest(self, network: Any) -> tuple[int, int]:
        """Most tokens of a source and of a target."""
        return network.config.max_position_embeddings, network.config.max_position_embeddings - 2

    def prepare(self, network: Any, batch: PairBatch, random: np.random.Generator) -> Shifted:
        c = network.config
        return shift(batch, c.decoder_start_token_id, c.eos_token_id, c.pad_token_id)

    def loss(self, network: Any, batch: PairBatch, made: Shifted, forward: Any) -> tuple[Tensor, int]:
        """(sum of the losses of a share of a batch, predicted tokens in the share)."""
        device = network.device
        source = torch.from_numpy(batch.source).to(device)
        seen = torch.arange(source.shape[1]) < torch.from_numpy(batch.source_lengths)[:, None]
        chosen = torch.from_numpy(made.chosen).to(device)
        out = network.model(
            input_ids=source, attention_mask=seen.long().to(device), use_cache=False,
            decoder_input_ids=torch.from_numpy(made.given).to(device), decoder_attention_mask=chosen.long(),
        )  # fmt: skip
        labels = torch.from_numpy(made.labels).to(device)[chosen]
        hidden = out.last_hidden_state[chosen]
        words = projected_cross_entropy(hidden, network.lm_head.weight, None, labels, self.options.label_smoothing)
        return words, int(chosen.sum())

    def translate(self, network: Any, tokenizer: Any, texts: Sequence[str]) -> list[str]:
        """Greedy search."""
        model = AutoregressiveTranslator(network, tokenizer, beam=1)
        sources = [tokenizer(text)["input_ids"][: self.options.longest] for text in texts]
        return [model.text(found[0][0]) for found in model.translate(sources)]

    def signature(self) -> str:
        return "decoder:greedy"
