"""How close the embedded path comes to the physical limit. `python -m benchmarks` prints it."""
