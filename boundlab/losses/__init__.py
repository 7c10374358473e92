"""Differentiable upper bounds of losses over a region."""
