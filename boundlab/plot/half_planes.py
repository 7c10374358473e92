"""Intersections of half planes, exactly.

Limits and directions are floating-point numbers, hence fractions, and so are all corners. A square
frame is cut by one half plane after the other (Sutherland and Hodgman, 1974); with fractions no
corner moves, so a set that is a segment or a point, or is empty, is found to be one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from boundlab.errors import ArgumentError
from boundlab.plot.reading import Array

Point = tuple[Fraction, Fraction]
FRAME = 1024
"""The frame around an intersection reaches so many times as far as any of its lines lies."""
SLACKS = (0.0, 1e-7, 1e-6, 1e-5, 1e-4)
"""What limits may contradict each other by, as a share of the largest: they were rounded."""


@dataclass(frozen=True)
class HalfPlane:
    """All points with ``a x + b y <= c``."""

    a: Fraction
    b: Fraction
    c: Fraction

    def room(self, point: Point) -> Fraction:
        """How far inside a point is; negative outside."""
        return self.c - self.a * point[0] - self.b * point[1]


@dataclass(frozen=True)
class Polygon:
    """corners: (corners, 2), in order around it; a segment has two, a point one. cut: for each,
    whether it is no corner of the set, which goes on beyond the frame there."""

    corners: Array
    cut: tuple[bool, ...]


def half_planes(directions: Array, lower: Array, upper: Array, slack: float) -> list[HalfPlane]:
    """``lower <= directions @ point <= upper`` as half planes, those of infinite limits left out;
    limits of a direction are moved outwards by ``slack`` times its length."""
    found = []
    for (a, b), low, up in zip(directions, lower, upper, strict=True):
        x, y, more = Fraction(float(a)), Fraction(float(b)), Fraction(slack * math.hypot(a, b))
        if math.isfinite(up):
            found.append(HalfPlane(x, y, Fraction(float(up)) + more))
        if math.isfinite(low):
            found.append(HalfPlane(-x, -y, more - Fraction(float(low))))
    return found


def intersection(planes: Sequence[HalfPlane], frame: Fraction) -> list[Point]:
    """The corners of an intersection inside of the square [-frame, frame]^2; none if it is empty
    there."""
    points = [(-frame, -frame), (frame, -frame), (frame, frame), (-frame, frame)]
    for plane in planes:
        points = _clipped(points, plane)
    return points


def _clipped(points: list[Point], plane: HalfPlane) -> list[Point]:
    """The part of a convex polygon in a half plane."""
    rooms = [plane.room(point) for point in points]
    found: list[Point] = []
    for k, point in enumerate(points):
        room, before = rooms[k], rooms[k - 1]
        if (room < 0 < before) or (before < 0 < room):
            found.append(_between(points[k - 1], point, before / (before - room)))
        if room >= 0:
            found.append(point)
    once = [point for k, point in enumerate(found) if point != found[k - 1]]
    return once or found[:1]


def _between(start: Point, end: Point, share: Fraction) -> Point:
    return (
        start[0] + share * (end[0] - start[0]),
        start[1] + share * (end[1] - start[1]),
    )


def polygon(directions: Array, lower: Array, upper: Array) -> Polygon:
    """All points with ``lower <= directions @ point <= upper``; directions: (directions, 2).

    Where rounding has made the limits contradict each other, they are widened by as much as is
    needed; an error if that is more than rounding does.
    """
    lengths = np.hypot(directions[:, 0], directions[:, 1])
    if not (lengths > 0).all():
        raise ArgumentError("directions must not be zero in the two dimensions that are drawn")
    if not np.isfinite(directions).all():
        raise ArgumentError("directions must be finite")
    away = np.abs(np.stack([lower, upper])) / lengths
    largest = float(np.max(away, where=np.isfinite(away), initial=0.0))
    if largest == 0:
        largest = 1.0
    frame = Fraction(2 ** math.ceil(math.log2(FRAME * largest)))
    for slack in SLACKS:
        points = intersection(half_planes(directions, lower, upper, slack * largest), frame)
        if points:
            cut = tuple(max(abs(x), abs(y)) == frame for x, y in points)
            return Polygon(np.array([[float(x), float(y)] for x, y in points]), cut)
    raise ArgumentError(
        "no point satisfies all bounds: were they asked with other directions, or of another "
        "region?"
    )
