"""The options that every command shares to name a model, and the one function that opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM

Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="NAME|DIR", help="Hub name or folder of a masked LM; causal:NAME[,mask=TOKEN][,shift]."
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|DIR|smiles",
        help="Where the tokenizer is, if not with the model; 'smiles' splits SMILES over the model's vocab.txt.",
    ),
]
Device = Annotated[
    str,
    typer.Option(metavar="DEVICE", help="cpu, cuda, cuda:1, mps, or auto: CUDA if there."),
]
Dtype = Annotated[
    str,
    typer.Option(metavar="DTYPE", help="Precision of the weights: float32, bfloat16 or float16."),
]
AllowPickle = Annotated[
    bool,
    typer.Option("--allow-pickle", help="Load weights that exist only as pickle (tensors only)."),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Run Python code that comes with the model; read it first."),
]
TokenBudget = Annotated[
    int | None,
    typer.Option(metavar="TOKENS", help="Tokens in one forward pass; changes memory and speed, not results."),
]
Format = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="text, fasta (letters), smiles or tokens; by suffix, else text."),
]

Compile = Annotated[
    bool,
    typer.Option("--compile", help="Compile the network first (minutes); for long jobs, mostly on a GPU."),
]


def open_model(
    model: str | None,
    tokenizer: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    token_budget: int | None = None,
    format: str = "text",
    compile: bool = False,
) -> HuggingFaceMaskedLM:
    """The model that these options name; without a name, the English model of the package. Raises `ModelError`."""
    from maskropolis.models import load

    return load(
        model,
        tokenizer=tokenizer,
        device=device,
        dtype=dtype,
        allow_pickle=allow_pickle,
        trust_remote_code=trust_remote_code,
        token_budget=token_budget,
        format=format,
        compile=compile,
    )
