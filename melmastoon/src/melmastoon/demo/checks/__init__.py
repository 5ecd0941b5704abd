"""What must be true afterwards, each with how it is known. Nothing here shares code with the services or asks the library."""
