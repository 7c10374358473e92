"""What the libraries that torch calls say of their own rounding errors, beside what was measured.

    python -m benchmarks.ulps_documented     a table of results/ulps.json

All in units of u |y|: a bound of k ulps is at most 2 k of them, and one of k ulps from the number
that is correctly rounded at most 2 k + 1.

- SLEEF (https://sleef.org/purec.xhtml): the vectorised kernels of torch, and of torch.compile, call
  the functions of 1.0 ULP, but sin and cos of 3.5 ULP, and erfc of 1.5 ULP. sinh and cosh may be
  infinite beyond 88.5, lgamma beyond 4e36, as was measured.
- oneMKL (https://www.intel.com/content/www/us/en/docs/onemkl/developer-reference-vector-math-
  performance-accuracy-data/2021-1/overview.html): at most 1 ULP in the mode of high accuracy. The
  same page says that errors depend on the processor.
- CUDA (the CUDA C++ Programming Guide, "Standard Functions", as quoted in sycl/doc/cuda/
  cuda-vs-opencl-math-builtin-precisions.md of github.com/intel/llvm): from tests that are not
  exhaustive, and no guarantee. Newer versions may be better.
- oneDNN gives no figure for its gelu; https://github.com/uxlfoundation/oneDNN/issues/1122 has
  differences beyond a relative 1e-5.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.timing import RESULTS

SLEEF = {
    **dict.fromkeys(("exp", "log", "log1p", "expm1", "log2", "log10", "exp2", "erf"), 1.0),
    **dict.fromkeys(("tan", "atan", "asin", "acos", "sinh", "cosh", "pow_2.5", "lgamma"), 1.0),
    **dict.fromkeys(("tanh", "atanh"), 1.0001),
    **dict.fromkeys(("asinh", "acosh"), 1.001),
    **dict.fromkeys(("sin", "cos"), 3.5),
    "erfc": 1.5,
}
"""In ULP."""

CUDA = {
    **dict.fromkeys(("sqrt", "reciprocal", "div"), 0),
    **dict.fromkeys(("log", "log2", "log1p", "expm1"), 1),
    **dict.fromkeys(("exp", "exp2", "log10", "tanh", "sin", "cos", "atan", "cosh"), 2),
    **dict.fromkeys(("erf", "erfinv", "rsqrt"), 2),
    **dict.fromkeys(("acos", "sinh", "asinh", "atanh"), 3),
    **dict.fromkeys(("tan", "asin", "acosh", "erfc"), 4),
    "lgamma": 6,
    "pow_2.5": 8,
}
"""In ulps from the number that is correctly rounded. Whether torch's kernel is no more than a call
of the function was not looked at."""

MEASURED = ("AVX512", "AVX2", "DEFAULT")
KEYS = {"y": "y without underflow", "y and x": "y and x", "y and 1": "y and 1"}


def _largest(found: dict[str, Any], places: tuple[str, ...], name: str, key: str) -> float | None:
    values = [found[p][name]["summary"][key] for p in places if name in found.get(p, {})]
    return max(values, default=None)


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3g}"


def lines(found: dict[str, Any]) -> list[str]:
    """A row for each function: the model that fits, its constant over all kernels of torch, that of
    compiled ones, what is lost to underflow, and the documented bounds."""
    header = ["function", "all numbers of", "unit", "measured", "compiled", "float64", "underflow"]
    header += ["SLEEF", "CUDA"]
    rows = [header, ["---"] * len(header)]
    for name, row in found["AVX512"].items():
        model = row["summary"]["model"]
        double = found.get("AVX512 float64", {}).get(name, {"models": {}})["models"]
        documented = ["", ""]
        if name in SLEEF:
            documented[0] = _cell(2 * SLEEF[name])
        if name in CUDA:
            documented[1] = _cell(2 * CUDA[name] + 1)
        lost = ""
        if model == "y":
            lost = _cell(_largest(found, MEASURED, name, "underflow"))
        rows.append(
            [
                name,
                row["mode"],
                model,
                _cell(_largest(found, MEASURED, name, KEYS[model])),
                _cell(_largest(found, ("AVX512 compiled",), name, KEYS[model])),
                _cell(double.get(model, {"units": None})["units"]),
                lost,
                *documented,
            ]
        )
    return ["| " + " | ".join(row) + " |" for row in rows]


def main() -> None:
    print("\n".join(lines(json.loads((RESULTS / "ulps.json").read_text()))))


if __name__ == "__main__":
    main()
