"""How close the PostgreSQL path comes to the physical limit. `python -m benchmarks postgres` prints it."""
