"""Tests that some versions of torch cannot run, and why."""

from __future__ import annotations

from boundlab.compat.private import VERSION

TRANSFORMS = "the gradient of irfft fails in torch 2.6 itself (MKL)"
PROGRAMS = "torch 2.6 saves programs in a format that load_program refuses"
ASIDE = "torch 2.6 itself cannot load the program of this model that it has saved"
CAUSAL = "torch 2.6 refuses the step of attention that writes in place, which capture replaces"
DERIVATIVES = "torch 2.6 has no derivative of aminmax"
SECOND = "torch 2.6 has no second derivative of grid_sample, which alpha-crown needs"
NORMS = "the ONNX exporter of torch 2.6 fails on batch norm with the onnxscript of these tests"
SHORT = "torch 2.6 has no bitwise_not of 16 bits without sign"

SAVED = (
    "test_programs_of_friends_are_the_same",
    "test_guards_survive",
    "test_sizes_that_depend_on_others",
    "test_pickles_in_programs",
    "test_strange_paths",
    "test_a_second_archive_behind_the_first",
    "test_programs_of_old_versions",
    "test_code_in_graphs",
    "test_notes_on_nodes_are_text",
    "test_plain_weights_of_torch_2_8",
    "test_texts_that_end_their_quotes",
    "test_messages_of_asserts",
    "test_compressed_members",
    "test_exported_program",
)
"""Tests of programs saved with torch.export.save."""

CONSTANTS = "compat/test_private.py::test_constants_without_values_are_left_in_programs"
IN_2_6 = {
    CONSTANTS: "torch.export of torch 2.6 does not record derivatives",
    **{f"::{name}": PROGRAMS for name in SAVED},
    "-aminmax]": DERIVATIVES,
    "-whole, aminmax]": DERIVATIVES,
    "[order-range]": DERIVATIVES,
    "[warp-bilinear]": SECOND,
    "test_every_registered_operator_is_tested": CAUSAL,
    "test_a_subject_that_travels_is_the_same": ASIDE,
    "[BitwiseNot]": SHORT,
    "test_onnx_files_compute_what_the_network_does": NORMS,
    "capture/test_complex.py::test_bounds_hold[irfft]": TRANSFORMS,
}
"""Part of a test's name -> why torch 2.6 cannot run it."""
IN_2_10 = {CONSTANTS: "torch.export of torch 2.10 fails on models that take derivatives"}
"""The same for torch 2.10."""
IN_2_15 = {
    "test_what_is_refused_is_named[loss-checked-gaussian]": (
        "torch 2.15 itself records the checks of torch.distributions as assertions"
    ),
}
"""The same for torch 2.15."""

FROM_THE_END = VERSION >= (2, 10)
"""Whether take_along_dim takes indices that count from the end: torch 2.6 refuses them."""


def reason(name: str) -> str | None:
    """Why this version of torch cannot run a test; None if it can. A version between those that are
    tested counts as the one before it."""
    table: dict[str, str] = {}
    if VERSION < (2, 10):
        table = IN_2_6
    elif VERSION < (2, 13):
        table = IN_2_10
    elif VERSION >= (2, 15):
        table = IN_2_15
    return next((why for part, why in table.items() if part in name), None)
