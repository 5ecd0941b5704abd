"""What goes beside the built distributions: constraints with hashes, a bill of materials, checksums. Not part of any of them."""
