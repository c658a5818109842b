"""From the words of a configuration to the target: experts loaded, constraints made, starts within the support."""

from __future__ import annotations

from dataclasses import dataclass

from maskropolis.errors import InputError
from maskropolis.models.huggingface.masked_lm import HuggingFaceMaskedLM
from maskropolis.targets.constraints import Constraints
from maskropolis.targets.constraints.classes import token_set
from maskropolis.targets.constraints.repeats import NoRepeat
from maskropolis.targets.constraints.words import word_constraint
from maskropolis.targets.energy import Energy, MaskedEnergy
from maskropolis.targets.experts.specification import Specification
from maskropolis.targets.steered import SteeredEnergy


@dataclass(frozen=True)
class Steering:
    """What a user asks for, as text. Raises `InputError` for what can be refused without a model.

    Attributes:
        experts: see `maskropolis.targets.experts.specification`.
        require, forbid: words that every text holds, or none.
        allow: sets of tokens, see `maskropolis.targets.constraints.classes`.
        no_repeat: n, if no n tokens in a row may occur twice.
    """

    experts: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    no_repeat: int | None = None

    def __post_init__(self) -> None:
        for expert in self.experts:
            Specification.parse(expert)
        both = {word.lower() for word in self.require} & {word.lower() for word in self.forbid}
        if both:
            raise InputError(f"nobody can satisfy this: the word '{sorted(both)[0]}' is required and forbidden")
        if self.no_repeat is not None and self.no_repeat < 1:
            raise InputError(f"no-repeat {self.no_repeat} is out of range; expected a number of tokens, at least 1")

    def __bool__(self) -> bool:
        return bool(self.experts or self.require or self.forbid or self.allow or self.no_repeat)

    @property
    def code(self) -> tuple[str, ...]:
        """`module:function` of each of the user's functions that making the energy imports and calls."""
        named = (Specification.parse(text).code for text in self.experts)
        return tuple(code for code in named if code is not None)

    def energy(self, masked: MaskedEnergy, model: HuggingFaceMaskedLM) -> Energy:
        """The target. Raises `InputError` or `ModelError`."""
        if not self:
            return masked
        experts = []
        for text in self.experts:
            wanted = Specification.parse(text)
            trust = bool(model.loaded_with.get("trust_remote_code"))
            experts.append((wanted.weight, wanted.build(model.codec, model.device, trust)))
        return SteeredEnergy(masked, model.codec.decode, tuple(experts), self.constraints(model))

    def constraints(self, model: HuggingFaceMaskedLM) -> Constraints:
        codec, allowed = model.codec, model.allowed
        parts: list[object] = [token_set(text, codec, allowed) for text in self.allow]
        parts += [word_constraint(word, False, codec, allowed) for word in self.forbid]
        parts += [word_constraint(word, True, codec, allowed) for word in self.require]
        if self.no_repeat is not None:
            parts.append(NoRepeat(self.no_repeat, len(allowed), model.mask_token))
        return Constraints(tuple(parts))
