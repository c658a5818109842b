"""Logits at positions equal the full model's, for every architecture, and the output layer sees nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import tiny
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from maskropolis import HuggingFaceMaskedLM
from maskropolis.models.forward.rows import batches, single_mask_rows

ARCHITECTURES = sorted(tiny.configurations())


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request: pytest.FixtureRequest) -> HuggingFaceMaskedLM:
    return HuggingFaceMaskedLM(tiny.network(request.param), tiny.tokenizer(), name=request.param)


def alone(network: Any, ids: torch.Tensor) -> torch.Tensor:
    """[T, V], the full model on one row without padding."""
    with torch.inference_mode():
        return network(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None]).logits[0]


class OutputRows(TorchDispatchMode):
    """Counts the rows of every matrix product that gives V columns: what the output layer works on."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = operation(*args, **(kwargs or {}))
        aten = torch.ops.aten
        products = (aten.linear, aten.matmul, aten.addmm, aten.mm, aten.bmm)
        if operation.overloadpacket in products and out.shape[-1] == tiny.V:
            self.sizes.append(out.shape[:-1].numel())
        return out


def test_logits_at_positions_equal_the_full_model(model: HuggingFaceMaskedLM) -> None:
    sequences = model.codec.encode(tiny.SENTENCES)
    positions = torch.tensor([[1, 4], [1, 2], [3, 9]])
    rows = sequences.masked(positions, model.mask_token)
    with torch.inference_mode():
        full = model.model(input_ids=rows.tokens, attention_mask=rows.attention.long()).logits
    ours = model.logits(rows, positions)
    expected = full.gather(1, positions[..., None].expand(-1, -1, full.shape[-1]))
    assert ours.shape == (3, 2, tiny.V)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)


def test_rows_in_batches_equal_the_full_model_on_each_row_alone(model: HuggingFaceMaskedLM) -> None:
    sequences = model.codec.encode(tiny.SENTENCES)
    rows = single_mask_rows(sequences)
    seen = 0
    for index, logits in batches(model, sequences, rows):
        for row, found in zip(index.tolist(), logits[:, 0], strict=True):
            chain, position = int(rows.chain[row]), int(rows.asked[row, 0])
            ids = sequences.tokens[chain, : int(sequences.lengths[chain])].clone()
            ids[position] = model.mask_token
            torch.testing.assert_close(found, alone(model.model, ids)[position], atol=1e-5, rtol=0)
            seen += 1
    assert seen == len(rows) == int(sequences.free.sum())


def test_the_route_is_the_one_expected(model: HuggingFaceMaskedLM) -> None:
    assert model.output_layer == ("all positions" if model.name in tiny.FALLBACK else "asked positions")
    assert model.padding_safe == (model.name not in tiny.PADDING_UNSAFE)


def test_the_last_layer_is_shortened_where_it_is_berts(model: HuggingFaceMaskedLM) -> None:
    like_bert = {"bert", "roberta", "xlm-roberta", "electra", "big_bird"}
    assert (model._last_layer is not None) == (model.name in like_bert)


def test_output_layer_sees_only_asked_positions(model: HuggingFaceMaskedLM) -> None:
    if model.name in tiny.FALLBACK:
        pytest.skip("this architecture goes through the full forward pass")
    sequences = model.codec.encode(tiny.SENTENCES)
    with OutputRows() as output:
        model.logits(sequences, torch.tensor([[1], [2], [3]]))
    assert output.sizes == [3]


def test_the_longest_row_fits(model: HuggingFaceMaskedLM) -> None:
    assert model.max_length is not None
    sequences = model.codec.blank([model.max_length - 2])
    assert sequences.width == model.max_length
    assert model.logits(sequences, torch.tensor([[1]])).isfinite().all()
