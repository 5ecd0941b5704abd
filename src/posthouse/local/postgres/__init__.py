"""What the store and the broker in a PostgreSQL have in common: questions to the server, and hints between machines."""
