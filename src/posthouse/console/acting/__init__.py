"""Acting: everything that operators may press, over the same functions as the command line."""
