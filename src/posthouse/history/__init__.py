"""What was: the archive, and what is read from it again."""
