"""What a model is asked to learn: each objective corrupts a batch and says which positions are to be predicted."""

from maskropolis.training.objectives.base import Corrupted, Objective, Vocabulary
from maskropolis.training.objectives.bert import Bert
from maskropolis.training.objectives.d3pm import D3pm
from maskropolis.training.objectives.gaussian_dae import GaussianDae
from maskropolis.training.objectives.mdlm import Mdlm
from maskropolis.training.objectives.mixture import Mixture
from maskropolis.training.objectives.uniform import UniformRate

__all__ = ["Bert", "Corrupted", "D3pm", "GaussianDae", "Mdlm", "Mixture", "Objective", "UniformRate", "Vocabulary"]
