"""Special functions, rounding to steps, and operators by their second names."""

from __future__ import annotations

import torch
from torch import special

from tests.operator_cases.case import add, on


def fill() -> None:
    steps = torch.tensor([0.1, 0.2, 0.3, 0.5, 1.0, 2.0])
    zeros = torch.tensor([0, 3, -2, 0, 1, 0], dtype=torch.int32)
    add((6,), {
        "erfc": torch.erfc,
        "ndtr": special.ndtr,
        "log_ndtr": special.log_ndtr,
        "sinc": torch.sinc,
        "sinc, fast": lambda x: torch.sinc(5 * x),
        "frac": torch.frac,
        "fmod": on(torch.fmod, other=0.7),
        "fmod, negative divisor": on(torch.fmod, other=-0.7),
        "fmod, by a constant": (torch.fmod, torch.tensor([0.7, -0.7, 1.0, 2.0, 0.1, 30.0])),
        "logit, eps": on(torch.logit, eps=0.1),
        "logit, eps above a half": on(torch.logit, eps=0.7),
        "nan_to_num": torch.nan_to_num,
        "nan_to_num, others": lambda x: torch.nan_to_num(2 * x, 3.0, 1.0, 2.0),
        "heaviside": (lambda x, v: torch.heaviside(x.detach(), v), torch.tensor([0.5, 0.0, 1.0, 3.0, -2.0, 0.2])),
        "round, decimals": on(torch.round, decimals=1),
        "round, hundreds": lambda x: torch.round(100 * x, decimals=-2),
        "copysign, of a number": lambda x: torch.copysign(x, -2.0) + torch.copysign(2 * x, 0.0),
        "copysign, of a constant": (torch.copysign, torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0])),
        "signbit": lambda x: torch.where(torch.signbit(x), x, 3.0),
        "second names": lambda x: special.expit(x) + special.exp2(x) - special.expm1(x) + special.erf(x) - special.erfc(x) + special.sinc(x),
        "second names, rounded": lambda x: special.round(x) - special.round(x, decimals=1),
        "second names, clip": lambda x: torch.clip(x, -0.5, 0.8) + x.clip(max=0.1),
        "second names, units": lambda x: torch.deg2rad(x) - torch.rad2deg(x),
    }, elementwise=True)  # fmt: skip
    add((6,), {
        "second names, softmax": lambda x: special.softmax(x, 1) + special.log_softmax(x, 1) - special.logsumexp(x, 1, keepdim=True),
        "second names, clip by tensors": (lambda x, w: torch.clip(x, w, w + 1), (6,)),
    })  # fmt: skip
    add((6,), {
        "fake_quantize": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15),
        "fake_quantize, fine": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.003, 0, -128, 127),
        "fake_quantize, tensors": (lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s.float(), z, -4, 3), torch.tensor([0.25]), torch.tensor([1], dtype=torch.int32)),
        "fake_quantize, per channel": (lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s.float(), z, 1, -8, 7), steps, zeros),
    }, alone=True)  # fmt: skip
    positive = {
        "lgamma": torch.lgamma,
        "digamma": torch.digamma,
        "entr": special.entr,
        "second names, gamma": lambda x: special.gammaln(x) - special.psi(x) + special.digamma(x) - special.log1p(x),
    }  # fmt: skip
    add((6,), positive, 0.05, elementwise=True)
    add((6,), {"entr at 0": special.entr}, 0.0, elementwise=True)
    add(
        (6,),
        {"erfinv": torch.erfinv, "second names, erfinv": special.erfinv},
        -0.95,
        0.95,
        elementwise=True,
    )
    add((6,), {
        "logit, operator": torch.logit, "ndtri": special.ndtri,
        "second names, logit": lambda x: special.logit(x) + special.logit(x, 1e-3),
    }, 0.02, 0.97, elementwise=True)  # fmt: skip
