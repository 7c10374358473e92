"""What ``import boundlab as bl`` offers: every public name."""

from boundlab.attacks import Attack, attack
from boundlab.errors import (
    ArgumentError,
    BoundlabError,
    CaptureError,
    DomainError,
    MemoryLimit,
    MixedSamples,
    UnsupportedOperator,
)
from boundlab.losses.clean_pass import CleanPass
from boundlab.losses.cross_entropy import robust_cross_entropy
from boundlab.losses.flatness import flatness, mean_loss_bound, weight_balls
from boundlab.methods.alpha import Alpha
from boundlab.methods.method import Method
from boundlab.methods.state import BoundState
from boundlab.net import Net, capture
from boundlab.net.problem import Problem
from boundlab.onnx import load_onnx
from boundlab.radius import certified_radius
from boundlab.regions import L0, L1, L2, Box, Linf, Lp, Region, Words
from boundlab.results import Bounds, LinearBounds
from boundlab.rules.affine import affine
from boundlab.rules.curves import Curve
from boundlab.rules.elementwise import elementwise
from boundlab.rules.registry import composition
from boundlab.specs.property import Property, robust
from boundlab.specs.vnnlib import load_vnnlib
from boundlab.training.fit import fit
from boundlab.training.recipe import Recipe
from boundlab.training.runs import load_run
from boundlab.verify import verify

__all__ = [
    "L0", "L1", "L2", "Alpha", "ArgumentError", "Attack", "BoundState", "BoundlabError", "Bounds",
    "Box", "CaptureError", "CleanPass", "Curve", "DomainError", "LinearBounds", "Linf", "Lp",
    "MemoryLimit", "Method", "MixedSamples", "Net", "Problem", "Property", "Recipe", "Region",
    "UnsupportedOperator", "Words", "affine", "attack", "capture", "certified_radius",
    "composition", "elementwise", "fit", "flatness", "load_onnx", "load_run", "load_vnnlib",
    "mean_loss_bound", "robust", "robust_cross_entropy", "verify", "weight_balls",
]  # fmt: skip
