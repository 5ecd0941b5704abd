"""Access: who looks, what they may see, and what they may press."""
