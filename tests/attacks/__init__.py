"""Attacks whose truth is known by construction.

Each module has a small selection that runs with the tests (``test_*.py`` beside it), and a large
run: ``python -m tests.attacks.NAME --count N --seed S`` prints counts and every finding with what
reproduces it.
"""
