"""Other libraries on the same job: each one's own API as its documentation shows it. `make bench-peers` prints it."""
