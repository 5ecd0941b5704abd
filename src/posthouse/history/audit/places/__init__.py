"""Places where audit logs are kept."""
