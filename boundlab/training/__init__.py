"""Training networks whose robustness can be proved: losses, schedules, recipes, and the loop that
uses them."""
