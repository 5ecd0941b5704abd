"""Acting: what operators press."""
