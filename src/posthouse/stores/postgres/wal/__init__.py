"""The outbox read from PostgreSQL's own log, decoded by pgoutput, through a slot that lives as long as its connection."""
