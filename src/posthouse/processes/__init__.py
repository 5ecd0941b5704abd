"""What takes its time: timers."""

from posthouse.processes.timers import Timers

__all__ = ["Timers"]
