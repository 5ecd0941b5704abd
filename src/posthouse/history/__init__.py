"""What was: the archive, what is read from it again, the proof that nobody touched it, and how long it is kept."""
