"""Tests of the rules. Every operator is attacked by test_operators.py with the cases of
tests/operator_cases: ``pytest tests/rules/test_operators.py -k max_pool`` runs those of one."""
