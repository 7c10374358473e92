"""Interval, forward, backward and hybrid bound propagation."""
