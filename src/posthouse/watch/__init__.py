"""Watch: what can be seen of services that run, and of those that do not: figures read from the seam and from the stores."""
