"""Masked conditionals: what a model must do, and the models that do it."""
