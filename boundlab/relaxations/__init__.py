"""Intervals, and linear bounds of one operator: lines, planes, affine maps."""
