"""What is said: every service of the platform with the facts that it owns. What the services do about them is elsewhere:
these modules know nothing but each other's vocabulary, so that any service can read any fact."""
