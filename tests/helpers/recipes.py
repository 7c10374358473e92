"""Recipes that train in a second."""

from __future__ import annotations

from dataclasses import replace

from boundlab.training.recipe import Recipe

TINY = Recipe(
    name="tiny",
    model="small-cnn-bn",
    epochs=3,
    batch=32,
    lr=2e-3,
    milestones=(2,),
    eps=0.05,
    start=0.5,
    length=1.5,
    kappa=(0.5, 0.0),
    flip=True,
    crop=1,
)


PLAIN = replace(TINY, model="small-cnn", tightness=0.0, balance=0.0)
"""Without batch norm and warm-up terms, which take the statistics of each process's share of a
batch."""
