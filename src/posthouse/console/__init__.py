"""The console: what flows, what is stuck, what it means, what to press. One ASGI application over the same functions as the command line."""
