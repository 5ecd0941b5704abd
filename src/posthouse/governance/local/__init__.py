"""What build time uses of this machine: git, protoc, archives."""
