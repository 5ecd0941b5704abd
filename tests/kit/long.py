"""Whether this is `make test-long`: enumerations are taken whole, and storms last. Otherwise a sample of them, the same in
every run."""

import os

LONG = "POSTHOUSE_LONG" in os.environ
