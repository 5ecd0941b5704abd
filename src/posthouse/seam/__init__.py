"""The seam: the five crossings of an event, each a short list of named steps.

A fact on its way out, a frame on its way in, a call of a handler, a publish and a receive of the broker, a transaction of the
store. Whatever is to be done, measured or refused at one of them has its place here, and nowhere else.
"""

from posthouse.seam.rules import Rules
from posthouse.seam.seam import OutwardStep, Seam
from posthouse.seam.timing import Crossing, Figure, Timing

__all__ = ["Crossing", "Figure", "OutwardStep", "Rules", "Seam", "Timing"]
