"""A folder for each room of the package; what tests the whole (networks, random graphs, docs) is
beside them.

helpers/: the soundness contract and what several files use. operator_cases/, networks/, attacks/,
reference/: tables and attacks. regressions/: wrong answers of the past, a file for each room.
"""
