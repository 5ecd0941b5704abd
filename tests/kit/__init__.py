"""What tests share: servers, waiting, frames, one shop of events."""
