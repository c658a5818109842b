"""The CPU's faster products give what PyTorch's own calls give, and step aside where they must."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention

from maskropolis.models.forward import cpu_products
from maskropolis.models.forward.cpu_products import CpuProducts, available
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.sequences import Sequences

needed = pytest.mark.skipif(not available(), reason="this PyTorch has no oneDNN product")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@needed
@torch.no_grad()
@pytest.mark.parametrize("rows", [(1,), (5, 7), ()])
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear(rows: tuple[int, ...], with_bias: bool) -> None:
    input, weight = normal(*rows, 128), normal(200, 128, seed=1)
    bias = normal(200, seed=2) if with_bias else None
    with CpuProducts():
        ours = linear(input, weight, bias)
    torch.testing.assert_close(ours, linear(input, weight, bias), atol=1e-4, rtol=1e-5)


@needed
@torch.no_grad()
def test_a_changed_weight_is_laid_out_anew() -> None:
    mode, input, weight = CpuProducts(), normal(3, 128), normal(128, 128, seed=1)
    with mode:
        before = linear(input, weight)
        weight.mul_(2)
        torch.testing.assert_close(linear(input, weight), 2 * before, atol=1e-4, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("mask", ["none", "bool", "float", "row hidden"])
def test_attention(mask: str) -> None:
    query, key, value = (normal(2, 3, 6, 8, seed=s) for s in range(3))
    masks: dict[str, Any] = {
        "none": None,
        "bool": normal(2, 1, 6, 6, seed=4) > -0.5,
        "float": normal(2, 1, 6, 6, seed=4),
        "row hidden": torch.ones(2, 1, 1, 6, dtype=torch.bool).index_fill_(3, torch.tensor([4, 5]), False),
    }
    expected = scaled_dot_product_attention(query, key, value, attn_mask=masks[mask])
    with CpuProducts():
        ours = scaled_dot_product_attention(query, key, value, attn_mask=masks[mask])
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_query_that_sees_nothing_is_finite_and_the_others_do_not_notice(kind: str) -> None:
    query, key, value = (normal(1, 2, 4, 8, seed=s) for s in range(3))
    visible = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    visible[..., 3, :] = False
    mask = visible if kind == "bool" else torch.where(visible, 0.0, -torch.inf)
    with CpuProducts():
        ours = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert ours.isfinite().all()
    expected = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    torch.testing.assert_close(ours[..., :3, :], expected[..., :3, :], atol=1e-5, rtol=1e-5)


def test_gradients_take_the_usual_way() -> None:
    weight = normal(128, 128).requires_grad_()
    with CpuProducts():
        linear(normal(2, 128), weight).sum().backward()
        attended = scaled_dot_product_attention(*(normal(1, 1, 3, 4, seed=s).requires_grad_() for s in range(3)))
    assert weight.grad is not None
    assert attended.requires_grad


@torch.no_grad()
def test_causal_attention_and_half_precision_take_the_usual_way() -> None:
    parts = [normal(1, 1, 3, 4, seed=s) for s in range(3)]
    half = normal(2, 128).bfloat16(), normal(128, 128).bfloat16()
    with CpuProducts():
        ours = scaled_dot_product_attention(*parts, is_causal=True)
        assert linear(*half).dtype == torch.bfloat16
        with torch.autocast("cpu", torch.bfloat16):
            assert linear(normal(2, 128), normal(128, 128)).dtype == torch.bfloat16
    torch.testing.assert_close(ours, scaled_dot_product_attention(*parts, is_causal=True))


@needed
def test_a_model_gives_the_same_logits_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    import tiny
    from transformers import BertConfig, BertForMaskedLM

    tokenizer = tiny.tokenizer()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        pad_token_id=tokenizer.pad_token_id,
    )
    network = BertForMaskedLM(config)
    fast = HuggingFaceMaskedLM(copy.deepcopy(network), tokenizer)
    monkeypatch.setattr(cpu_products, "available", lambda: False)
    plain = HuggingFaceMaskedLM(network, tokenizer)
    tokens = torch.randint(5, len(tokenizer), (4, 9), generator=torch.Generator().manual_seed(1))
    attention = torch.ones_like(tokens, dtype=torch.bool)
    attention[1, 7:] = False
    rows, at = Sequences(tokens, attention, attention), torch.tensor([[0, 3], [1, 2], [8, 4], [5, 6]])
    assert fast._products is not None
    assert plain._products is None
    torch.testing.assert_close(fast.logits(rows, at), plain.logits(rows, at), atol=1e-5, rtol=1e-5)


def test_a_pytorch_without_the_operator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuProducts, "linear", lambda *_: (_ for _ in ()).throw(AttributeError("no such operator")))
    monkeypatch.setitem(cpu_products._OWN, nn.functional.linear, CpuProducts.linear)
    available.cache_clear()
    assert not available()
    monkeypatch.undo()
    available.cache_clear()


@torch.no_grad()
@pytest.mark.parametrize("scale", [None, 0.0, 0.5])
def test_a_given_scale_is_kept(scale: float | None) -> None:
    parts = [normal(1, 2, 4, 8, seed=s) for s in range(3)]
    with CpuProducts():
        ours = scaled_dot_product_attention(*parts, scale=scale)
    torch.testing.assert_close(ours, scaled_dot_product_attention(*parts, scale=scale), atol=1e-5, rtol=1e-5)
