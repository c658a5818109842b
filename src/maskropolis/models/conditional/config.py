"""The shape of an encoder–decoder conditional masked LM, saved with its weights."""

from __future__ import annotations

from typing import ClassVar

from transformers import PreTrainedConfig

from maskropolis.errors import InputError, unknown_name

MODEL_TYPE = "maskropolis-conditional"
ENDS = ("none", "fixed", "predicted")
ACTIVATIONS = ("gelu", "relu")


class ConditionalConfig(PreTrainedConfig):
    """Sizes and variants.

    Attributes:
        d_model, heads, encoder_layers, decoder_layers, feed_forward: width, attention heads, depths, inner width.
        max_source_positions, max_target_positions: most tokens of a source (its end token included) and of a target
            row; target lengths 1 … max_target_positions − 1 can be predicted.
        norm_first: layer norm before each sub-layer and after the last one (pre-norm), else after each (post-norm).
        position_offset: learned positions start at this index (fairseq: padding index + 1).
        output_bias: whether the output layer, tied to the embeddings, has a bias.
        end: `none`: a target row is its tokens; `fixed`: an end token that never changes follows them; `predicted`:
            the end token is one more token that is counted in the length, masked and predicted (fairseq).
        continuation: mark at the end of a sub-word that goes on (`@@`) if the text form joins sub-words by it.
    """

    model_type: ClassVar[str] = MODEL_TYPE

    vocab_size: int = 8000
    d_model: int = 256
    heads: int = 4
    encoder_layers: int = 3
    decoder_layers: int = 3
    feed_forward: int = 1024
    dropout: float = 0.1
    activation: str = "gelu"
    max_source_positions: int = 256
    max_target_positions: int = 256
    norm_first: bool = True
    layer_norm_eps: float = 1e-5
    position_offset: int = 0
    output_bias: bool = True
    end: str = "fixed"
    continuation: str = ""
    pad_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    unk_token_id: int = 2
    mask_token_id: int = 3
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True

    def check(self) -> ConditionalConfig:
        """Itself. Raises `InputError` for values that no network can have."""
        if self.end not in ENDS:
            raise unknown_name("kind of target end", self.end, ENDS)
        if self.activation not in ACTIVATIONS:
            raise unknown_name("activation", self.activation, ACTIVATIONS)
        if self.d_model < 1 or self.heads < 1 or self.d_model % self.heads:
            raise InputError(f"a width of {self.d_model} does not divide into {self.heads} heads")
        for name in ("encoder_layers", "decoder_layers", "feed_forward"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.replace('_', ' ')} is {getattr(self, name)}; expected at least 1")
        return self

    @property
    def longest_target(self) -> int:
        """Most target tokens in a row, an end token not counted."""
        return self.max_target_positions - 1
