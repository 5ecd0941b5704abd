"""What was: the archive, what is read from it again, and the proof that nobody touched it."""
