"""What a model is asked to learn: each objective corrupts a batch and says which positions are to be predicted."""

from maskropolis.training.objectives.base import Corrupted, Objective, Vocabulary
from maskropolis.training.objectives.bert import Bert
from maskropolis.training.objectives.mixture import Mixture
from maskropolis.training.objectives.uniform import UniformRate

__all__ = ["Bert", "Corrupted", "Mixture", "Objective", "UniformRate", "Vocabulary"]
