"""Load: three times the usual rate for minutes, then a consumer that cannot keep up. Producer, relay and consumers are processes."""
