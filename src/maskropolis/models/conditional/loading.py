"""Opens a conditional model by folder or name: an encoder–decoder of ours, or a plain masked LM through a prefix."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from maskropolis.errors import ModelError, unknown_name
from maskropolis.models.conditional.config import MODEL_TYPE
from maskropolis.models.conditional.encoder_decoder import ConditionalMaskedLM
from maskropolis.models.conditional.network import ConditionalNetwork
from maskropolis.models.conditional.prefix import PrefixConditional
from maskropolis.models.conditional.text import require_fast
from maskropolis.models.huggingface.loading import DTYPES, find_device
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.models.huggingface.pretrained import network_from, own_refusal, tokenizer_from
from maskropolis.models.huggingface.quiet import quiet


def saved_config(name: str) -> dict[str, Any]:
    """The configuration saved under `name`. Raises `ModelError`."""
    try:
        with quiet():
            values, _ = PreTrainedConfig.get_config_dict(name)
    except Exception:
        values = {}
    if not values:
        raise ModelError(f"no model '{name}': expected the folder of a saved translation model")
    return dict(values)


def is_autoregressive(name: str) -> bool:
    """Whether the model saved under `name` is an encoder–decoder that is not ours. Raises `ModelError`."""
    values = saved_config(name)
    return bool(values.get("is_encoder_decoder")) and values.get("model_type") != MODEL_TYPE


def load_conditional(
    name: str,
    *,
    device: str = "auto",
    dtype: str = "float32",
    separator: str | None = None,
    length_ratio: float = 1.0,
    trust_remote_code: bool = False,
) -> ConditionalMaskedLM | PrefixConditional:
    """The conditional model saved in the folder `name`.

    With a `separator`, any plain masked LM: source, separator and target in one row. Raises `ModelError` in one line.
    """
    kind = str(saved_config(name).get("model_type", "of no known kind"))
    if kind == MODEL_TYPE:
        return _encoder_decoder(name, device, dtype, trust_remote_code)
    if separator is not None:
        plain = HuggingFaceMaskedLM.from_pretrained(
            name, device=device, dtype=dtype, trust_remote_code=trust_remote_code
        )
        return PrefixConditional(plain, separator, length_ratio)
    raise ModelError(
        f"'{name}' is not a conditional model ({kind}); expected one made by `maskropolis train cmlm`, "
        "or give --separator to use a plain masked language model"
    )


def _encoder_decoder(name: str, device: str, dtype: str, trust: bool) -> ConditionalMaskedLM:
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    where = find_device(device)
    try:
        with quiet():
            network: Any = network_from(ConditionalNetwork, name, dtype=DTYPES[dtype], use_safetensors=True)
            tokenizer = tokenizer_from(name, trust=trust)
    except Exception as error:
        refused = own_refusal(name, error)
        if refused is not None:
            raise refused from None
        raise ModelError(f"cannot load '{name}': {' '.join(str(error).split())[:300]}") from None
    require_fast(tokenizer, name)
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= network.config.vocab_size:
        raise ModelError(f"the tokenizer in '{name}' does not belong to its model: it has ids up to {highest}")
    return ConditionalMaskedLM(network.to(where), tokenizer, name)
